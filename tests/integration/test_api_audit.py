"""The audit log: each change once, by whom, in the transaction of the change; none for what was refused."""

import hashlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from node_rig import RunningNode, running_node

from duly.nodes.settings import Role, Token
from duly.storage import upkeep
from duly.wheel.durations import from_us

FAR = "2040-01-01T00:00:00Z"


def _token(name: str, role: Role) -> Token:
    return Token(name, role, hashlib.sha256(name.encode()).hexdigest())


@pytest.fixture
async def guarded(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node with tokens that are the names of their owners; its client has Ann's."""
    tokens = (_token("ann", "submit"), _token("bo", "admin"), _token("cy", "payload-view"))
    async with running_node(fresh_database, redis_url, tokens=tokens, token="ann") as running:
        yield running


async def change(
    node: RunningNode, action: str, task_id: object, who: str = "ann", **more: object
) -> int:
    """Ask for a change of a task; the status of the answer."""
    method, path = ("PATCH", "") if action == "change" else ("POST", f"/{action}")
    headers = {"Authorization": f"Bearer {who}"}
    body = more or None
    answer = await node.call(method, f"/v1/tasks/{task_id}{path}", body, headers)
    return answer.status


async def log(node: RunningNode, query: str = "") -> list[dict[str, Any]]:
    """All that the audit log answers to a query, page by page of two."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        path = f"/v1/audit?limit=2{query}{cursor}"
        answer = await node.call("GET", path, None, {"Authorization": "Bearer bo"})
        assert answer.status == 200, answer
        found += answer.body["items"]
        if answer.body["next_cursor"] is None:
            return found
        assert len(answer.body["items"]) == 2
        cursor = f"&cursor={answer.body['next_cursor']}"


def said(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Who did what, oldest first."""
    return [(entry["who"], entry["action"]) for entry in reversed(entries)]


async def test_each_change_is_noted_once_with_its_author(guarded: RunningNode) -> None:
    one = await guarded.client.submit("a", run_at=FAR)
    every = await guarded.client.submit("b", schedule={"every": 86_400, "start_at": FAR})
    for action, task, who in (
        ("pause", one, "ann"), ("resume", one, "bo"), ("pause", every, "ann"), ("resume", every, "ann"),
        ("run-now", one, "bo"), ("run-now", every, "ann"),
    ):  # fmt: skip
        assert await change(guarded, action, task.id, who) == 200, action
    later = await guarded.client.submit("a", run_at=FAR)
    assert await change(guarded, "change", later.id, priority=9, payload={"word": "hush"}) == 200
    assert await change(guarded, "cancel", later.id, "bo") == 200
    entries = await log(guarded)
    assert said(entries) == [
        ("ann", "pause"), ("bo", "resume"), ("ann", "pause"), ("ann", "resume"),
        ("bo", "run-now"), ("ann", "run-now"), ("ann", "change"), ("bo", "cancel"),
    ]  # fmt: skip
    cancelled, changed = entries[:2]
    assert (cancelled["task_id"], cancelled["role"]) == (str(later.id), "admin")
    assert cancelled["details"] is None
    assert set(changed["details"]["fields"]) == {"priority", "payload"}
    assert "hush" not in str(entries)  # the log names fields, not what they hold
    now = from_us(guarded.context.clock.now_us())
    assert abs(datetime.fromisoformat(changed["at"]) - now) < timedelta(minutes=5)


async def test_a_schedule_is_changed_under_its_authors_name(guarded: RunningNode) -> None:
    task = await guarded.client.submit("b", schedule={"every": 86_400, "start_at": FAR})
    assert (
        await change(guarded, "change", task.id, schedule={"every": 3_600, "start_at": FAR}) == 200
    )
    (entry,) = await log(guarded)
    assert (entry["who"], entry["action"]) == ("ann", "change")
    assert entry["details"] == {"fields": ["schedule"]}


async def test_a_retry_is_noted_and_runs_are_not(guarded: RunningNode) -> None:
    task = await guarded.running_task("a", max_retries=0)
    failed = {"token": task.version, "outcome": "failed", "error": "no"}
    assert (await guarded.call("POST", f"/v1/tasks/{task.id}/report", failed)).status == 200
    assert await log(guarded) == []
    assert await change(guarded, "retry", task.id) == 200
    assert said(await log(guarded)) == [("ann", "retry")]


async def test_what_is_refused_is_not_noted(guarded: RunningNode) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    await guarded.client.cancel(task.id)
    for action in ("cancel", "retry", "pause", "resume", "run-now"):
        assert await change(guarded, action, task.id) == 409, action
    assert await change(guarded, "change", task.id, priority=1) == 409
    other = await guarded.client.submit("a", run_at=FAR)
    headers = {"If-Match": '"7"'}
    path = f"/v1/tasks/{other.id}"
    assert (await guarded.call("PATCH", path, {"priority": 1}, headers)).status == 412
    assert await change(guarded, "cancel", other.id, "cy") == 403
    assert await change(guarded, "resume", other.id) == 200  # it was not paused
    assert said(await log(guarded)) == [("ann", "cancel")]


async def test_it_is_filtered_and_for_admins(guarded: RunningNode) -> None:
    one, two = [await guarded.client.submit("a", run_at=FAR) for _ in range(2)]
    for who, task in (("ann", one), ("bo", two), ("bo", one)):
        assert await change(guarded, "pause", task.id, who) == 200
        assert await change(guarded, "resume", task.id, who) == 200
    assert len(await log(guarded)) == 6
    assert {entry["who"] for entry in await log(guarded, "&who=bo")} == {"bo"}
    assert len(await log(guarded, f"&task_id={one.id}")) == 4
    assert len(await log(guarded, f"&task_id={one.id}&who=bo&action=resume")) == 1
    middle = (await log(guarded))[3]["at"].replace("+", "%2B")
    assert len(await log(guarded, f"&before={middle}")) == 2
    assert len(await log(guarded, f"&since={middle}")) == 4
    for who, status in (("ann", 403), ("cy", 403), ("bo", 200)):
        headers = {"Authorization": f"Bearer {who}"}
        assert (await guarded.call("GET", "/v1/audit", None, headers)).status == status
    for query in ("task_id=x", "since=today", "cursor=x", "limit=0", "colour=red", "who=%00"):
        headers = {"Authorization": "Bearer bo"}
        answer = await guarded.call("GET", f"/v1/audit?{query}", None, headers)
        assert (answer.status, answer.fields) == (422, [query.partition("=")[0]])


async def test_without_tokens_it_has_no_names(node: RunningNode) -> None:
    task = await node.client.submit("a", run_at=FAR)
    await node.client.cancel(task.id)
    (entry,) = (await node.call("GET", "/v1/audit")).body["items"]
    assert (entry["who"], entry["role"], entry["action"]) == (None, "admin", "cancel")


async def test_a_change_that_cannot_be_noted_is_not_made(node: RunningNode) -> None:
    task = await node.client.submit("a", run_at=FAR)

    async def spoil(connection: Any) -> None:
        await connection.execute("alter table audit add constraint full_up check (action = 'x')")

    await node.context.db.run(spoil)
    answer = await node.call("POST", f"/v1/tasks/{task.id}/cancel")
    assert answer.status == 500
    assert (await node.client.get(task.id)).status == "pending"


async def test_it_is_dropped_by_days_with_the_runs(node: RunningNode) -> None:
    task = await node.client.submit("a", run_at=FAR)
    await node.client.cancel(task.id)
    now = from_us(node.context.clock.now_us())
    await upkeep.drop_old_days(node.context.db, now - timedelta(days=1))
    assert await node.count("audit") == 1
    await upkeep.drop_old_days(node.context.db, now + timedelta(days=2))
    assert await node.count("audit") == 0
