"""How many tasks a worker takes, and from which queue."""

import asyncio
from typing import Any

import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker
from duly.storage.conveyor import Conveyor


class Slow:
    """A worker whose handlers end when told; counts how many run at once."""

    def __init__(self, node: FakeNode, **options: Any) -> None:
        self.worker = Worker(node.url, id="w1", **options)
        self.order: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.permits = asyncio.Semaphore(0)
        self.worker.task("t")(self._handle)

    async def _handle(self, ctx: Context) -> None:
        self.order.append(ctx.queue)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.permits.acquire()
        self.at_once -= 1

    def let_end(self, count: int) -> None:
        for _ in range(count):
            self.permits.release()


async def test_no_more_is_taken_than_there_are_slots(node: FakeNode) -> None:
    slow = Slow(node, concurrency=3)
    for _ in range(10):
        await node.dispatch("t")
    async with running(slow.worker):
        await until(lambda: slow.at_once == 3)
        assert await node.pending() == 3
        slow.let_end(1)
        await until(lambda: len(slow.order) == 4)
        await until(lambda: _pending(node, 3))
        slow.let_end(9)
        await node.wait_reports(10)
        await node.empty()
    assert slow.most_at_once == 3


async def test_several_queues_share_the_slots(node: FakeNode) -> None:
    slow = Slow(node, queues=["a", "b"], concurrency=4)
    for queue in ("a", "b"):
        for _ in range(10):
            await node.dispatch("t", queue=queue)
    async with running(slow.worker):
        await until(lambda: slow.at_once == 4)
        assert sorted(slow.order) == ["a", "a", "b", "b"]
        slow.let_end(20)
        await node.wait_reports(10, "a")
        await node.wait_reports(10, "b")
    assert slow.most_at_once == 4


async def test_with_one_slot_the_queues_take_turns(node: FakeNode) -> None:
    slow = Slow(node, queues=["a", "b", "c"], concurrency=1)
    for queue in ("a", "b", "c"):
        for _ in range(4):
            await node.dispatch("t", queue=queue)
    slow.let_end(12)
    async with running(slow.worker):
        for queue in ("a", "b", "c"):
            await node.wait_reports(4, queue)
    rounds = [slow.order[start : start + 3] for start in range(0, 12, 3)]
    assert [sorted(each) for each in rounds] == [["a", "b", "c"]] * 4
    assert slow.most_at_once == 1


async def test_an_idle_worker_with_few_slots_hears_every_queue(node: FakeNode) -> None:
    slow = Slow(node, queues=["a", "b", "c"], concurrency=1)
    slow.let_end(3)
    async with running(slow.worker):
        for queue in ("c", "a", "b"):
            await until(node.reading)
            await node.dispatch("t", queue=queue)
            await node.wait_reports(1, queue)
    assert slow.order == ["c", "a", "b"]


async def test_what_does_not_fit_goes_back_without_a_retry_used(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one read that waits on all queues may bring one task of each."""
    read = Conveyor.read
    blocking = asyncio.Event()
    dispatched = asyncio.Event()

    async def late(self: Conveyor, queues: Any, count: int, block_ms: int) -> Any:
        if block_ms:
            blocking.set()
            await dispatched.wait()
        return await read(self, queues, count, block_ms)

    monkeypatch.setattr(Conveyor, "read", late)
    slow = Slow(node, queues=["a", "b"], concurrency=1)
    async with running(slow.worker):
        await blocking.wait()
        for queue in ("a", "b"):
            await node.dispatch("t", queue=queue)
        dispatched.set()
        await until(lambda: _outcomes(node, ["snoozed"]))
        assert slow.at_once == 1
        slow.let_end(1)
        await until(lambda: _outcomes(node, ["completed", "snoozed"]))
    assert slow.most_at_once == 1


async def _outcomes(node: FakeNode, expected: list[str]) -> bool:
    reports = [*await node.reports("a"), *await node.reports("b")]
    assert all(r.delay == "0" for r in reports if r.outcome == "snoozed")
    return sorted(report.outcome for report in reports) == expected


async def _pending(node: FakeNode, count: int) -> bool:
    return await node.pending() == count
