"""Reading: lists with every filter, pages, runs."""

import asyncio
import base64
from typing import Any

from node_rig import RunningNode

FAR = "2040-01-01T00:00:00Z"


async def ids(node: RunningNode, query: str) -> list[str]:
    answer = await node.call("GET", f"/v1/tasks?{query}")
    assert answer.status == 200, answer
    return [item["id"] for item in answer.body["items"]]


async def submitted(node: RunningNode, *tasks: dict[str, Any]) -> list[str]:
    batch = {"tasks": [{"type": "a", "run_at": FAR, **task} for task in tasks]}
    found: list[str] = (await node.call("POST", "/v1/tasks/batch", batch)).body["ids"]
    return found


async def test_every_filter(node: RunningNode) -> None:
    one, two, three, four = await submitted(
        node,
        {"type": "mail", "tags": {"team": "a", "env": "x:y"}},
        {"type": "mail", "queue": "slow", "run_at": "2041-01-01T00:00:00Z"},
        {"queue": "slow", "tags": {"team": "b"}, "run_at": "2042-01-01T00:00:00Z"},
        {"tags": {"é": "ü"}, "run_at": "2043-01-01T00:00:00Z"},
    )
    await node.call("POST", f"/v1/tasks/{two}/cancel")
    await node.call("POST", f"/v1/tasks/{three}/pause")
    expected = {
        "": [four, three, two, one],
        "status=pending": [four, three, one],
        "status=cancelled": [two],
        "status=running": [],
        "type=mail": [two, one],
        "queue=slow": [three, two],
        "queue=slow&type=mail": [two],
        "queue=slow&status=pending": [three],
        "tag=team:a": [one],
        "tag=env:x:y": [one],
        "tag=team:": [],
        "tag=%C3%A9:%C3%BC": [four],
        "type=%ff": [],
        "tag=%ed%a0%80:1": [],
        # the first instant counts, the last does not; what has ended is not due
        "due_after=2040-01-01T00:00:00Z&due_before=2042-01-01T00:00:00Z": [one],
        "due_after=2042-01-01T01:00:00%2B01:00": [four, three],
        "due_before=2040-01-01T00:00:00.000001Z": [one],
        "limit=1": [four],
        f"id={two}": [two],
        f"id={two}&type=mail&status=cancelled": [two],
        f"id={two}&type=other": [],
        "periodic=true": [],
        "periodic=false&queue=slow": [three, two],
        "paused=true": [three],
        "paused=false": [four, two, one],
        "paused=false&status=pending": [four, one],
    }
    for query, found in expected.items():
        assert await ids(node, query) == found, query


async def test_pages_hold_every_task_once(node: RunningNode) -> None:
    made = await submitted(node, *({"payload": n} for n in range(25)))
    for gone in made[::5]:
        await node.call("POST", f"/v1/tasks/{gone}/cancel")
    found: list[str] = []
    cursor, pages = "", 0
    while True:
        answer = await node.call("GET", f"/v1/tasks?limit=7{cursor}")
        found += [item["id"] for item in answer.body["items"]]
        pages += 1
        if pages == 1:  # newer ones do not move the pages that follow
            await submitted(node, {}, {})
        if answer.body["next_cursor"] is None:
            break
        cursor = f"&cursor={answer.body['next_cursor']}"
    assert found == made[::-1]
    assert pages == 4
    exact = await node.call("GET", "/v1/tasks?limit=27")
    assert len(exact.body["items"]) == 27
    assert exact.body["next_cursor"] is None


async def test_wrong_queries_name_their_parameter(node: RunningNode) -> None:
    (task,) = await submitted(node, {})
    wrong = [
        "limit=0", "limit=1001", "limit=x", "limit=", "limit=-1", "limit=1.0", "limit=%D9%A1",
        "status=x", "status=", "status=paused", "tag=x", "tag=:1", "tag=a:%00", "type=%00",
        "queue=%00", "due_before=x", "due_before=", "due_after=9999-12-31T23:59:59Z",
        "due_after=2040-01-01T00:00:00", "nope=1", "limit=1&limit=1",
        "id=x", "periodic=1", "paused=", "paused=True", "cursor=x", "cursor=%ff",
        "cursor=", f"cursor={_cursor('5|' + FAR)}", f"cursor={_cursor('x')}",
    ]  # fmt: skip
    for query in wrong:
        answer = await node.call("GET", f"/v1/tasks?{query}")
        assert (answer.status, answer.fields) == (422, [query.partition("=")[0]]), query
    for text in (
        "5|0001-01-01T00:00:00+14:00", "5|9999-12-31T23:59:59-14:00", "5|2020-01-01T00:00:00",
        f"-1|{FAR}", f"{1 << 63}|{FAR}", f"x|{FAR}", "5", "5|x", f"5|{FAR}|", "\0",
    ):  # fmt: skip
        answer = await node.call("GET", f"/v1/tasks/{task}/runs?cursor={_cursor(text)}")
        assert (answer.status, answer.fields) == (422, ["cursor"]), text
    assert (await node.call("GET", f"/v1/tasks/{task}?limit=1")).status == 422
    assert (await node.call("GET", f"/v1/tasks/{task}/runs?status=x")).status == 422


def _cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


async def test_runs_newest_first_in_pages(node: RunningNode) -> None:
    task = await node.running_task(max_retries=4, backoff={"kind": "fixed", "delay": 0})
    path = f"/v1/tasks/{task.id}"
    for attempt in range(1, 6):
        body = {"token": task.version, "outcome": "failed", "error": {"n": attempt}, "worker": "w"}
        assert (await node.call("POST", path + "/report", body)).status == 200
        if attempt < 5:
            task = await _running_again(node, task.id, task.version)
    whole = (await node.call("GET", path + "/runs")).body
    runs = whole["items"]
    assert [run["attempt"] for run in runs] == [5, 4, 3, 2, 1]
    assert [run["error"] for run in runs] == [{"n": n} for n in (5, 4, 3, 2, 1)]
    assert {run["outcome"] for run in runs} == {"failed"}
    assert {run["worker"] for run in runs} == {"w"}
    assert len({run["occurrence"] for run in runs}) == 1
    assert [run["token"] for run in runs] == sorted((run["token"] for run in runs), reverse=True)
    assert whole["next_cursor"] is None
    found: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        page = (await node.call("GET", f"{path}/runs?limit=2{more}")).body
        found += page["items"]
        cursor = page["next_cursor"]
    assert found == runs
    ended = (await node.call("GET", path)).body
    assert (ended["status"], ended["retry_count"], ended["next_run_at"]) == ("failed", 4, None)
    assert ended["error"] == {"n": 5}


async def _running_again(node: RunningNode, task_id: Any, version: int) -> Any:
    async with asyncio.timeout(60):
        while True:
            task = await node.client.get(task_id)
            if task.status == "running" and task.version > version:
                return task
            await asyncio.sleep(0.01)
