"""A queue's rate over three nodes, seen by what came into its stream: by Redis's clock, in the entries' ids.

Never more than the rate and the burst allow, however busy the machine; that it is reached is measured by
`scripts/benchmarks`, and here only roughly.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from node_rig import RunningNode, running_node
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from waiting import wait_for

from duly.storage import keys
from duly.storage.redis import call, connect

QUEUE = "paced"


class Taker:
    """A worker of a kind: takes entries, remembers when each task came into the stream, reports nothing."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.times_ms: list[int] = []
        self.ids: set[bytes] = set()

    async def run(self) -> None:
        stream, group = keys.tasks(QUEUE), keys.WORKERS_GROUP
        with contextlib.suppress(ResponseError):  # a node has made it
            await self._call("XGROUP CREATE", stream, group, "0", "MKSTREAM")
        while True:
            found = await self._call(
                "XREADGROUP",
                "GROUP",
                group,
                "w",
                "COUNT",
                500,
                "BLOCK",
                100,
                "STREAMS",
                stream,
                ">",
            )
            for _, entries in found or ():
                for entry_id, words in entries:
                    task_id = dict(zip(words[::2], words[1::2], strict=True))[b"id"]
                    if task_id not in self.ids:  # a new owner of its slot publishes it again
                        self.times_ms.append(int(entry_id.split(b"-")[0]))
                        self.ids.add(task_id)
                ids = [entry_id for entry_id, _ in entries]
                await self._call("XACK", stream, group, *ids)
                await self._call("XDEL", stream, *ids)

    async def _call(self, *words: Any) -> Any:
        return await call(self._client, *words, timeout_s=30.0)

    def most_within(self, span_ms: int) -> int:
        """The most entries in any span of so many milliseconds."""
        most = first = 0
        for last, at in enumerate(self.times_ms):
            while at - self.times_ms[first] >= span_ms:
                first += 1
            most = max(most, last - first + 1)
        return most


@asynccontextmanager
async def three_nodes(database_url: str, redis_url: str) -> AsyncIterator[list[RunningNode]]:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                running_node(
                    database_url, redis_url, owns_slots=not number,
                    dispatch_grace_s=600.0,  # nobody reports: all that is taken counts as running
                )
            )
            for number in range(3)
        ]  # fmt: skip
        await wait_for(
            lambda: all(node.context.vitals.owned_slots > 80 for node in nodes),
            60, "the slots are shared",
        )  # fmt: skip
        yield nodes


@asynccontextmanager
async def taking(redis_url: str) -> AsyncIterator[Taker]:
    client = connect(
        redis_url, name="taker"
    )  # the library's own may swallow the cancellation below
    taker = Taker(client)
    task = asyncio.create_task(taker.run())
    try:
        yield taker
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.aclose()


@pytest.mark.parametrize(("rate", "burst"), [(200, None), (50, 1), (150, 100)])
async def test_a_rate_holds_over_three_nodes(
    fresh_database: str, redis_url: str, rate: int, burst: int | None
) -> None:
    count = 5 * rate
    async with three_nodes(fresh_database, redis_url) as nodes, taking(redis_url) as taker:
        await nodes[0].client.update_queue(QUEUE, rate=rate, burst=burst)
        await wait_for(
            lambda: all(node.context.controls.of(QUEUE).rate == rate for node in nodes),
            30, "all nodes know the rate",
        )  # fmt: skip
        await nodes[1].client.submit_batch([{"type": "t", "queue": QUEUE}] * count)
        await wait_for(lambda: len(taker.ids) == count, 120, "all are out")
    most = burst or rate // 10
    assert len(taker.times_ms) == count
    for span_ms in (20, 100, 1_000, 3_000):
        # Ids are in whole milliseconds: a span of them is at most one longer.
        assert taker.most_within(span_ms) <= rate * (span_ms + 1) / 1_000 + most
    took_s = (max(taker.times_ms) - min(taker.times_ms)) / 1_000
    assert took_s >= (count - most) / rate - 0.001


async def test_a_node_that_leaves_changes_nothing(fresh_database: str, redis_url: str) -> None:
    async with three_nodes(fresh_database, redis_url) as nodes, taking(redis_url) as taker:
        await nodes[0].client.update_queue(QUEUE, rate=100)
        ids = await nodes[0].client.submit_batch([{"type": "t", "queue": QUEUE}] * 600)
        await wait_for(lambda: len(taker.ids) > 100, 60, "the first are out")
        nodes[2].supervisor.request_stop()
        await wait_for(lambda: len(taker.ids) == len(ids), 120, "all are out")
    assert taker.most_within(1_000) <= 100 * 1.001 + 10
