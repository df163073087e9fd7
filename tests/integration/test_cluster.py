"""Two nodes share the slots, and each takes over when the other goes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from node_rig import RunningNode, running_node
from waiting import wait_for
from worker_rig import running

import duly
from duly.storage.slots import SLOTS


async def owned(node: RunningNode) -> list[int]:
    """Slots that PostgreSQL says are the node's."""

    async def work(connection: Any) -> list[int]:
        sql = "select slot from slots where owner = $1"
        return [row["slot"] for row in await connection.fetch(sql, node.context.node_id)]

    return await node.context.db.run(work)


async def shares_are(expected: int, *nodes: RunningNode) -> None:
    async def even() -> bool:
        stored = [len(await owned(node)) for node in nodes]
        return {*stored, *(node.context.vitals.owned_slots for node in nodes)} == {expected}

    await wait_for(even, 60, f"each node owns {expected} slots")


@asynccontextmanager
async def slow_request(url: str) -> AsyncIterator[None]:
    """A submission whose handler has begun and waits for the body."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        writer.write(b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n")
        assert b" 100 " in await asyncio.wait_for(reader.readline(), 60)
        yield
    finally:
        writer.close()
        await writer.wait_closed()


async def test_two_nodes_own_half_each_and_the_one_that_stays_takes_all(
    fresh_database: str, redis_url: str
) -> None:
    async with running_node(fresh_database, redis_url) as first:
        async with running_node(fresh_database, redis_url, owns_slots=False) as second:
            await shares_are(SLOTS // 2, first, second)
        await shares_are(SLOTS, first)


async def test_tasks_fire_once_each_wherever_they_were_submitted(
    fresh_database: str, redis_url: str
) -> None:
    ran: list[str] = []
    worker = duly.Worker(redis_url, id="w")

    @worker.task("t")
    async def handler(ctx: duly.Context) -> None:
        assert datetime.now(UTC) >= ctx.due - timedelta(milliseconds=50)
        ran.append(str(ctx.id))

    async with (
        running_node(fresh_database, redis_url) as first,
        running_node(fresh_database, redis_url, owns_slots=False) as second,
        running(worker),
    ):
        await shares_are(SLOTS // 2, first, second)
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        submitted = []
        for node in (first, second):
            for number in range(100):
                task = await node.client.submit("t", number, run_at=due)
                submitted.append(str(task.id))
        await wait_for(lambda: len(ran) >= len(submitted), 60, "all tasks ran")

        async def none_left() -> bool:
            return await first.count() == 0

        await wait_for(none_left, 60, "every outcome is recorded")
        assert sorted(ran) == sorted(submitted)
        claims = [node.context.vitals.claimed for node in (first, second)]
        assert sum(claims) == len(submitted)
        assert min(claims) > 0


async def test_a_request_that_takes_its_time_does_not_hold_up_the_hand_over(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url) as stays,
        running_node(fresh_database, redis_url, owns_slots=False, stop_grace_s=600.0) as leaves,
    ):
        await shares_are(SLOTS // 2, stays, leaves)
        async with slow_request(leaves.url):
            leaves.supervisor.request_stop()
            await shares_are(SLOTS, stays)
            states = {one.name: one.state for one in leaves.supervisor.statistics()}
            assert states["api"] != "stopped"
