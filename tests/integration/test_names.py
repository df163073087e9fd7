"""Names of tasks: each is that of one unfinished task, however often and by how many it is submitted."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from stores_rig import running_stores
from waiting import wait_for

import duly
from duly.nodes.client import Conflict, NotFound
from duly.storage.layout import slot_of_key

NIGHTLY: dict[str, Any] = {
    "type": "report", "name": "nightly/report", "payload": {"rows": [1, 2.50]}, "tags": {"team": "a"},
    "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
}  # fmt: skip
_AS_TEXT = b"""{"name": "nightly/report", "type": "report", "queue": "default", "tags": {"team": "a"},
    "payload": {"rows": [1.0, 25e-1]}, "max_retries": 3, "overrun": "skip", "timeout": "PT5M",
    "schedule": {"timezone": "Europe/Berlin", "cron": "0  3 * * *"}}"""


async def test_the_same_definition_is_the_same_task(node: RunningNode) -> None:
    first = await node.call("POST", "/v1/tasks", NIGHTLY)
    assert first.status == 201
    assert first.body["name"] == "nightly/report"
    again = await node.call("POST", "/v1/tasks", _AS_TEXT)
    assert again.status == 200
    assert again.body == first.body
    assert again.headers["Location"] == f"/v1/tasks/{first.body['id']}"
    batch = await node.call("POST", "/v1/tasks/batch", {"tasks": [{"type": "a"}, NIGHTLY]})
    assert batch.status == 201
    assert batch.body["ids"][1] == first.body["id"]
    assert (await node.client.get(batch.body["ids"][0])).type == "a"


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"payload": {"rows": ["1", 2.5]}}, "payload"),
        ({"schedule": {"cron": "0 3 * * *"}}, "schedule"),
        ({"schedule": None, "type": "b"}, "type and schedule"),
        ({"priority": 6, "queue": "q", "misfire_grace": 5}, "queue and misfire_grace and priority"),
        ({"tags": {}, "backoff": {"delay": 6}, "on_lost": "fail"}, "backoff and on_lost and tags"),
    ],
)
async def test_another_definition_is_refused_and_the_fields_are_named(
    node: RunningNode, change: dict[str, Any], fields: str
) -> None:
    first = (await node.call("POST", "/v1/tasks", NIGHTLY)).body
    refused = await node.call("POST", "/v1/tasks", {**NIGHTLY, **change})
    assert refused.status == 409
    assert refused.body["detail"].endswith(f"with the name nightly/report, with another {fields}")
    assert refused.body["task"] == first
    body = {"tasks": [{"type": "a"}, {**NIGHTLY, **change}]}
    batch = await node.call("POST", "/v1/tasks/batch", body)
    assert batch.status == 409
    assert batch.fields == ["tasks[1].name"]
    assert [task.id async for task in node.client.list(type="a")] == []


async def test_a_name_is_free_again_once_its_task_has_ended(
    node: RunningNode, redis_url: str
) -> None:
    first = await node.client.submit("a", name="one", max_retries=0)
    async with HandWorker(redis_url) as worker:
        await worker.live()
        await worker.report(await worker.take(), "failed", error='"no"')

        async def ended() -> bool:
            return (await node.client.get(first.id)).status == "failed"

        await wait_for(ended, 30, "it has failed")
    with pytest.raises(NotFound):
        await node.client.get_by_name("one")
    second = await node.client.submit("a", name="one", delay=3600)
    assert second.id != first.id
    assert await node.client.get_by_name("one") == second
    assert [task.id async for task in node.client.list(name="one")] == [second.id, first.id]
    with pytest.raises(Conflict, match="another unfinished task has its name"):
        await node.client.retry(first.id)
    await node.client.cancel(second.id)
    assert (await node.client.retry(first.id)).name == "one"


async def test_a_name_beside_an_id_and_a_key(node: RunningNode) -> None:
    task_id = uuid4()
    first = await node.client.submit("a", name="n", id=task_id, delay=3600, idempotency_key="k")
    assert first.id == task_id
    same = await node.client.submit("a", name="n", delay=60, idempotency_key="other")
    assert same == first, "when it is due is no part of its definition"
    later = await node.client.submit("a", delay=3600, idempotency_key="other")
    assert later.name is None, "a key that was not used is not kept"
    taken = await node.call("POST", "/v1/tasks", {"type": "a", "name": "m", "id": str(task_id)})
    assert (taken.status, taken.body["detail"]) == (409, f"there is a task with the id {task_id}")
    twice = {"tasks": [{"type": "a", "name": "x"}, {"type": "a", "name": "x"}]}
    assert (await node.call("POST", "/v1/tasks/batch", twice)).fields == ["tasks[1].name"]


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 201, "a/../b", 5])
async def test_names_that_are_refused(node: RunningNode, name: object) -> None:
    answer = await node.call("POST", "/v1/tasks", {"type": "a", "name": name})
    assert (answer.status, answer.fields) == (422, ["name"])


async def test_a_name_is_one_also_where_there_are_several_stores(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        for number in range(8):
            body = {**NIGHTLY, "name": f"n{number}"}
            first = await node.call("POST", "/v1/tasks", body)
            assert first.status == 201
            assert first.body["slot"] == slot_of_key(f"n{number}")
            again = await node.call("POST", "/v1/tasks", body)
            assert (again.status, again.body["id"]) == (200, first.body["id"])
            found = await node.call("GET", f"/v1/names/n{number}")
            assert found.body["id"] == first.body["id"]
        keyed = {**NIGHTLY, "name": "n9", "idempotency_key": "k"}
        assert (await node.call("POST", "/v1/tasks", keyed)).fields == ["name"]


async def test_c15_many_at_once_that_define_a_schedule_make_one(
    node: RunningNode, redis_url: str
) -> None:
    """Its phase is not moved by those that come later."""

    async def define() -> duly.Task:
        async with duly.Client(node.url) as client:
            return await client.submit("tick", name="tick", schedule=duly.Every(0.2))

    async with HandWorker(redis_url) as worker:
        await worker.live()
        first = await define()
        for _ in range(10):
            found = await asyncio.gather(*(define() for _ in range(20)))
            assert {task.id for task in found} == {first.id}
            for taken in await worker.read(100):
                await worker.report(taken, "completed")
        assert [task.id async for task in node.client.list()] == [first.id]
        runs = [run.occurrence async for run in node.client.runs(first.id)]
    assert len(runs) == len(set(runs))
    assert first.created_at is not None
    for occurrence in runs:
        assert occurrence is not None
        assert (occurrence - first.created_at).total_seconds() * 1e6 % 200_000 == pytest.approx(
            0, abs=1
        )
