"""Submitting single tasks: when they run, what is answered, ids of the client's own."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from node_rig import RunningNode
from waiting import wait_for

from duly.storage.database import Database
from duly.storage.tasks import Only

FAR = "2040-01-01T00:00:00Z"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def assert_counted_from(before: datetime, moment: datetime) -> None:
    """It lies between `before` and now; the cluster's clock may differ a little from this process's."""
    little = timedelta(seconds=1)
    assert before - little < moment < datetime.now(UTC) + little


async def test_the_answer_is_the_task_as_it_is_found_later(node: RunningNode) -> None:
    body = {
        "type": "email.send", "queue": "mail/fast", "payload": {"b": [1, 2.5, None, "é"]},
        "run_at": "2040-01-01T01:00:00.123456+01:00", "max_retries": 7, "timeout": "PT5M",
        "misfire_grace": 60, "on_lost": "fail", "priority": 9, "tags": {"team": "a"},
        "backoff": {"kind": "linear", "delay": 3}, "idempotency_key": "k",
        "concurrency_key": "customer 7", "concurrency_limit": 10_000, "fairness_key": "é",
    }  # fmt: skip
    answer = await node.call("POST", "/v1/tasks", body)
    assert answer.status == 201
    task = answer.body
    assert answer.headers["Location"] == f"/v1/tasks/{task['id']}"
    assert answer.headers["ETag"] == '"0"'
    found = await node.call("GET", answer.headers["Location"])
    assert found.body == task
    assert found.headers["ETag"] == '"0"'
    assert at(task["next_run_at"]) == at("2040-01-01T00:00:00.123456+00:00")
    assert {name: task[name] for name in body if name not in ("run_at", "timeout", "backoff")} == {
        name: value for name, value in body.items() if name not in ("run_at", "timeout", "backoff")
    }
    assert task["timeout"] == 300
    assert task["backoff"] == {
        "kind": "linear", "delay": 3, "factor": 2, "max_delay": 3600, "jitter": 0.1,
    }  # fmt: skip
    assert task["status"] == "pending"
    assert UUID(task["id"]).version == 7
    assert 0 <= task["slot"] < 256


async def test_defaults(node: RunningNode) -> None:
    task = (await node.call("POST", "/v1/tasks", {"type": "a", "delay": 3600})).body
    expected: dict[str, Any] = {
        "queue": "default", "payload": None, "paused": False, "owner": None, "version": 0,
        "retry_count": 0, "max_retries": 3, "timeout": 300, "schedule": None, "overrun": "skip",
        "misfire_grace": None, "on_lost": "retry", "priority": 5, "idempotency_key": None,
        "tags": {}, "concurrency_key": None, "concurrency_limit": None, "fairness_key": None,
        "started_at": None, "finished_at": None, "worker": None, "result": None,
        "error": None,
        "backoff": {
            "kind": "exponential", "delay": 5, "factor": 2, "max_delay": 3600, "jitter": 0.1,
        },
    }  # fmt: skip
    assert {name: task[name] for name in expected} == expected


async def test_without_a_time_a_task_is_due_now(node: RunningNode) -> None:
    before = datetime.now(UTC)
    task = await node.running_task(payload=1)
    assert task.version > 0
    assert task.owner == node.context.node_id
    assert task.created_at is not None
    assert (
        before - timedelta(seconds=1) < task.created_at < datetime.now(UTC) + timedelta(seconds=1)
    )


@pytest.mark.parametrize("delay", [1800, 1800.5, "PT30M", "P1DT0.5S"])
async def test_a_delay_counts_from_now(node: RunningNode, delay: float | str) -> None:
    seconds = {"PT30M": 1800, "P1DT0.5S": 86400.5}.get(str(delay), delay)
    before = datetime.now(UTC)
    task = (await node.call("POST", "/v1/tasks", {"type": "a", "delay": delay})).body
    assert_counted_from(before, at(task["next_run_at"]) - timedelta(seconds=float(seconds)))


async def test_c16_delays_beyond_31_bits_of_milliseconds_do_not_fire_early(
    node: RunningNode,
) -> None:
    for delay_ms in (2_147_483_647, 2_147_483_648, 60 * 86_400_000, 400 * 86_400_000):
        before = datetime.now(UTC)
        body = {"type": "a", "delay": delay_ms / 1000}
        task = (await node.call("POST", "/v1/tasks", body)).body
        assert_counted_from(before, at(task["next_run_at"]) - timedelta(milliseconds=delay_ms))
    last = await node.call("POST", "/v1/tasks", {"type": "a", "run_at": "2999-12-31T23:59:59Z"})
    assert last.body["next_run_at"] == "2999-12-31T23:59:59Z"
    # A task due now goes all the way; those that are not due have gone nowhere by then.
    await node.running_task("now")
    await wait_for(lambda: node.context.vitals.wheel_entries == 0, 30, "the wheel is empty")
    tasks = await node.client.list(type="a")
    assert [task.status for task in tasks] == ["pending"] * 5


async def test_c16_times_beyond_reach_are_refused(node: RunningNode) -> None:
    for body in (
        {"delay": -1}, {"delay": -0.001}, {"delay": "-PT1S"}, {"delay": 1e12}, {"delay": 10**400},
        {"run_at": "9999-12-31T23:59:59Z"}, {"run_at": "0001-01-01T00:00:00Z"},
    ):  # fmt: skip
        answer = await node.call("POST", "/v1/tasks", json.dumps({"type": "a", **body}).encode())
        assert (answer.status, answer.fields) == (422, list(body)), body
    assert await node.count() == 0


async def test_an_id_of_the_clients_own(node: RunningNode) -> None:
    own = str(uuid4())
    body = {"type": "a", "id": own, "run_at": FAR}
    first = await node.call("POST", "/v1/tasks", body)
    assert (first.status, first.body["id"]) == (201, own)
    again = await node.call("POST", "/v1/tasks", body)
    assert again.status == 409
    assert await node.count() == 1


async def test_an_id_of_a_finished_task_is_taken(node: RunningNode) -> None:
    own = str(uuid4())
    body = {"type": "a", "id": own, "run_at": FAR}
    await node.call("POST", "/v1/tasks", body)
    await node.call("POST", f"/v1/tasks/{own}/cancel")
    assert (await node.call("POST", "/v1/tasks", body)).status == 409
    with_key = {**body, "idempotency_key": "new"}
    assert (await node.call("POST", "/v1/tasks", with_key)).status == 409
    assert await node.count() == 0
    assert await node.count("idempotency_keys") == 0


async def test_an_id_is_taken_also_if_its_task_ends_in_that_moment(node: RunningNode) -> None:
    """The task moves to the finished ones in a transaction that commits after the submission began."""
    own = str(uuid4())
    body = {"type": "a", "id": own, "run_at": FAR}
    await node.call("POST", "/v1/tasks", body)
    connection = await asyncpg.connect(node.settings.database_url)
    ending = connection.transaction()
    await ending.start()
    as_it_is: tuple[object, ...] = (None, None, None, None, [], [], *Only())
    await connection.fetch(Database.sql("cancel"), UUID(own), datetime.now(UTC), *as_it_is)
    alone = asyncio.create_task(node.call("POST", "/v1/tasks", body))
    in_batch = asyncio.create_task(node.call("POST", "/v1/tasks/batch", {"tasks": [body]}))
    waiting = "select count(*) = 2 from pg_locks where not granted"
    await wait_for(lambda: connection.fetchval(waiting), 30, "both submissions wait")
    await ending.commit()
    await connection.close()
    assert ((await alone).status, (await in_batch).status) == (409, 409)
    assert await node.count() == 0
    assert await node.count("finished_tasks") == 1


async def test_an_id_together_with_a_key(node: RunningNode) -> None:
    own = str(uuid4())
    body = {"type": "a", "id": own, "idempotency_key": "k", "run_at": FAR}
    assert (await node.call("POST", "/v1/tasks", body)).status == 201
    again = await node.call("POST", "/v1/tasks", body)
    assert (again.status, again.body["id"]) == (200, own)
    assert (await node.call("POST", "/v1/tasks", {**body, "id": str(uuid4())})).status == 409
    # The id is taken: then the key is not used up either.
    assert (await node.call("POST", "/v1/tasks", {**body, "idempotency_key": "l"})).status == 409
    assert await node.count() == 1
    assert await node.count("idempotency_keys") == 1
