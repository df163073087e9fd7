"""GET /v1/workers, /v1/slots, and what /v1/nodes tells besides who lives."""

import os
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from private_valkey import several
from waiting import wait_for
from worker_rig import running

import duly
from duly.storage import keys
from duly.storage.redis import call, connect
from duly.storage.slots import SLOTS
from duly.wheel.durations import parse_time, to_us


async def listed(node: RunningNode, path: str) -> list[Any]:
    """A whole list; asked again while Redis does not answer in time."""

    async def ask() -> Any:
        answer = await node.call("GET", path)
        return answer.body if answer.status == 200 else None

    body = await wait_for(ask, 30, f"{path} answers")
    assert body["next_cursor"] is None
    found: list[Any] = body["items"]
    return found


async def workers(node: RunningNode) -> dict[str, Any]:
    return {one["id"]: one for one in await listed(node, "/v1/workers")}


async def test_the_live_workers(node: RunningNode, redis_url: str) -> None:
    assert await workers(node) == {}
    await node.running_task()  # nobody takes it: but its queue is known now
    sdk = duly.Worker(redis_url, id="sdk", queues=["default"], concurrency=7)

    @sdk.task("t")
    async def work(_: duly.Context) -> None: ...

    async with HandWorker(redis_url) as hand, running(sdk):
        await hand.join()
        await hand.live()

        async def both() -> bool:
            return (await workers(node)).keys() == {"hand", "sdk"}

        await wait_for(both, 60, "both workers are listed")
        found = await workers(node)
        seen_s = found["sdk"].pop("seen_s")
        assert 0 <= seen_s < 60
        assert found["sdk"] == {
            "id": "sdk", "host": socket.gethostname(), "pid": os.getpid(), "queues": ["default"],
            "concurrency": 7, "running": found["sdk"]["running"], "held": found["sdk"]["held"],
            "sdk": f"duly-python/{version('duly')}", "unknown_types": [], "unreadable": [],
        }  # fmt: skip
        # What a worker in another language does not tell is null.
        assert found["hand"]["concurrency"] == 10
        assert {found["hand"][name] for name in ("host", "pid", "queues", "running", "sdk")} == {
            None
        }
        await hand.die()

        async def one() -> bool:
            return (await workers(node)).keys() == {"sdk"}

        await wait_for(one, 30, "who gives no sign of life is not listed")
    assert (await node.call("GET", "/v1/workers?limit=5")).fields == ["limit"]


async def test_a_worker_of_queues_that_never_had_a_task_is_listed(
    node: RunningNode, redis_url: str
) -> None:
    sdk = duly.Worker(redis_url, id="sdk", queues=["quiet"])

    @sdk.task("t")
    async def work(_: duly.Context) -> None: ...

    async with HandWorker(redis_url, queue="quiet") as hand, running(sdk):
        await hand.live()  # but it listens on no channel

        async def listed_alone() -> bool:
            return (await workers(node)).keys() == {"sdk"}

        await wait_for(listed_alone, 60, "the worker is listed")
        found = (await workers(node))["sdk"]
        assert (found["queues"], found["held"]) == (["quiet"], 0)
        assert 0 <= found["seen_s"] <= 10
        assert [one["queue"] for one in await listed(node, "/v1/queues")] == ["quiet"]
        assert await node.context.streams.queues.names() == set()  # looking makes nothing


async def test_a_worker_of_many_queues_is_listed_once(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url, queue="a") as of_a, HandWorker(redis_url, queue="b") as of_b:
        for queue, hand in (("a", of_a), ("b", of_b)):
            await node.running_task(queue=queue)
            await hand.live()
            await hand.take()
        found = await workers(node)
        assert found.keys() == {"hand"}
        assert found["hand"]["held"] == 2


async def test_every_slot_and_its_owner(node: RunningNode, redis_url: str) -> None:
    me = node.context.node_id
    found = await listed(node, "/v1/slots")
    assert [one["slot"] for one in found] == list(range(SLOTS))
    for one in found:
        assert one == {
            "slot": one["slot"], "owner": me, "epoch": 1, "taken_at": one["taken_at"],
            "last_owner": None, "unowned_since": None,
        }  # fmt: skip
        assert one["taken_at"] is not None

    # An owner in PostgreSQL whose lease another has is none.
    redis = connect(redis_url, name="test")
    await call(redis, "SET", keys.lease(7), "other", "PX", 600_000, timeout_s=10)
    found = await listed(node, "/v1/slots")
    await redis.aclose()
    assert (found[7]["owner"], found[7]["last_owner"]) == (None, me)
    assert [one["slot"] for one in found if one["owner"] is None] == [7]
    assert (await node.call("GET", "/v1/slots?limit=5")).fields == ["limit"]


async def test_a_slot_that_was_let_go_tells_since_when(fresh_database: str, redis_url: str) -> None:
    redis = connect(redis_url, name="test")
    async with running_node(fresh_database, redis_url) as first:
        await call(redis, "SET", keys.lease(7), "other", "PX", 600_000, timeout_s=10)
        began_us = first.context.clock.now_us()
    await redis.aclose()
    async with running_node(fresh_database, redis_url, owns_slots=False) as second:

        async def others_taken() -> bool:
            return [s["slot"] for s in await listed(second, "/v1/slots") if not s["owner"]] == [7]

        await wait_for(others_taken, 60, "the second node takes all slots but one")
        slot = (await listed(second, "/v1/slots"))[7]
        assert slot["last_owner"] is None
        since = parse_time(slot["unowned_since"])
        assert began_us <= to_us(since) <= second.context.clock.now_us()


async def test_nodes_tell_how_they_are(node: RunningNode) -> None:
    await node.client.submit("t", delay=60)

    async def told() -> Any:
        (one,) = await listed(node, "/v1/nodes")
        return one if one["wheel_entries"] == 1 else None

    one = await wait_for(told, 60, "the node tells of the task in its wheel")
    assert (one["version"], one["ready_entries"]) == (version("duly"), 0)
    assert (one["redis"], one["postgres"]) == (True, True)
    assert 0 <= one["lease_age_s"] < 60
    assert one["lag_p99_s"] is None  # nothing was fired
    assert abs(one["clock_offset_s"]) < 60


async def test_without_the_lease_servers_nobody_knows_the_owners(
    fresh_database: str, redis_url: str, tmp_path: Path
) -> None:
    with several(tmp_path, 1) as (server,):
        async with running_node(fresh_database, redis_url, lease_redis_urls=(server.url,)) as node:
            assert (await node.call("GET", "/v1/slots")).status == 200
            server.stop()
            answer = await node.call("GET", "/v1/slots")
            assert answer.status == 503
            assert "lease servers" in answer.body["detail"]


async def test_what_redis_does_not_answer_is_told_in_words(
    fresh_database: str, tmp_path: Path
) -> None:
    with several(tmp_path, 1) as (server,):
        async with running_node(fresh_database, server.url, redis_timeout_s=1.0) as node:
            server.pause()
            try:
                for path in ("/v1/workers", "/v1/nodes"):
                    answer = await node.call("GET", path)
                    assert answer.status == 503
                    assert answer.body["detail"].rpartition(": ")[2]
            finally:
                server.resume()
