"""How a worker ends: stop, drain, cancellation."""

import asyncio
import threading
from typing import Any

import anyio
import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker
from duly.storage.conveyor import Conveyor


class Held:
    """A worker with handlers that wait."""

    def __init__(self, node: FakeNode, **options: Any) -> None:
        self.worker = Worker(node.url, id="w1", **options)
        self.open = asyncio.Event()
        self.thread_open = threading.Event()
        self.started: list[Context] = []
        self.worker.task("async")(self._wait)
        self.worker.task("plain")(self._block)

    async def _wait(self, ctx: Context) -> str:
        self.started.append(ctx)
        await self.open.wait()
        return "done"

    def _block(self, ctx: Context) -> str:
        self.started.append(ctx)
        self.thread_open.wait(120)
        return "done"

    async def holds(self, count: int) -> None:
        await until(lambda: len(self.started) == count, f"{count} handlers")


@pytest.fixture
def quick_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.nodes.worker.runner.CANCEL_GRACE_S", 0.1)


async def test_a_stopping_worker_lets_what_runs_end_and_takes_nothing_more(node: FakeNode) -> None:
    held = Held(node, concurrency=2)
    async with running(held.worker) as life:
        first = await node.dispatch("async")
        await held.holds(1)
        held.worker.stop()
        await asyncio.sleep(0.1)
        later = await node.dispatch("async")
        assert not life.done()
        assert await node.alive()  # it still holds work
        held.open.set()
        await asyncio.wait_for(life, 25)
    (report,) = await node.reports()
    assert (report.id, report.value) == (first, "done")
    assert await node.left() == 1
    assert [ctx.id for ctx in held.started] == [first]
    assert later != first
    assert not await node.alive()


@pytest.mark.usefixtures("quick_grace")
async def test_what_runs_longer_than_the_drain_timeout_is_given_back_without_a_retry_used(
    node: FakeNode,
) -> None:
    held = Held(node, drain_timeout_s=0.1)
    async with running(held.worker):
        await node.dispatch("async")
        await node.dispatch("plain")
        await held.holds(2)
    reports = await node.reports()
    held.thread_open.set()
    assert [(r.outcome, r.delay) for r in reports] == [("snoozed", "0")] * 2
    assert all(ctx.cancelled for ctx in held.started)
    await node.empty()


async def test_what_was_read_and_not_begun_is_given_back_without_a_retry_used(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    checking = asyncio.Event()

    async def no_answer(self: Conveyor, queue: str, ids: Any) -> Any:
        checking.set()
        raise ConnectionError("no answer")

    monkeypatch.setattr(Conveyor, "tokens", no_answer)
    held = Held(node)
    async with running(held.worker):
        for _ in range(3):
            await node.dispatch("async")
        await checking.wait()
    reports = await node.reports()
    assert {(report.outcome, report.delay) for report in reports} == {("snoozed", "0")}
    assert await node.left() + len(reports) == 3
    assert await node.pending() == 0
    assert held.started == []


async def test_what_a_lost_answer_hid_is_given_back_at_the_stop(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Conveyor.read
    held = Held(node)

    async def unheard(self: Conveyor, queues: Any, count: int, block_ms: int) -> Any:
        found = await read(self, queues, count, block_ms)
        held.worker.stop()
        raise ConnectionError(f"the answer with {len(found)} entries is lost")

    monkeypatch.setattr(Conveyor, "read", unheard)
    for _ in range(3):
        await node.dispatch("async")
    async with running(held.worker):
        reports = await node.wait_reports(3)
    assert {(report.outcome, report.delay) for report in reports} == {("snoozed", "0")}
    await node.empty()
    assert held.started == []


async def test_a_stop_asks_a_redis_that_does_not_answer_once_for_all_queues(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(node, queues=["a", "b", "c"])
    asked: list[str] = []

    async def no_answer(_: Conveyor, queue: str) -> list[bytes]:
        asked.append(queue)
        raise TimeoutError

    async with running(held.worker):
        await until(node.reading)
        monkeypatch.setattr(Conveyor, "pending", no_answer)
    assert len(asked) == 1


async def test_an_idle_worker_does_not_wait_for_its_read_to_end(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.worker.reader.BLOCK_MS", 600_000)
    held = Held(node)
    async with running(held.worker):  # which gives it less than that to stop
        await until(node.reading)


async def test_stop_works_before_the_start_twice_and_from_another_thread(node: FakeNode) -> None:
    early = Held(node).worker
    early.stop()
    await asyncio.wait_for(early.serve(), 60)
    early.stop()
    worker = Held(node).worker
    async with running(worker) as life:
        await until(node.reading)
        stoppers = [threading.Thread(target=worker.stop) for _ in range(2)]
        for stopper in stoppers:
            stopper.start()
        await asyncio.wait_for(life, 25)
        for stopper in stoppers:
            stopper.join()
    worker.stop()


async def test_a_handler_may_stop_its_worker(node: FakeNode) -> None:
    worker = Worker(node.url)

    @worker.task("t")
    async def handler(ctx: Context) -> str:
        worker.stop()
        return "last"

    async with running(worker) as life:
        await node.dispatch("t")
        await asyncio.wait_for(life, 25)
    assert [report.value for report in await node.reports()] == ["last"]


async def test_a_worker_has_one_life(node: FakeNode) -> None:
    worker = Held(node).worker
    async with running(worker):
        pass
    with pytest.raises(RuntimeError, match="make a new one"):
        await worker.serve()


@pytest.mark.usefixtures("quick_grace")
async def test_cancelling_serve_stops_at_once_and_hands_everything_in(node: FakeNode) -> None:
    held = Held(node)
    life = asyncio.create_task(held.worker.serve())
    await node.dispatch("async")
    await held.holds(1)
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(life, 25)
    assert [report.outcome for report in await node.reports()] == ["snoozed"]
    await node.empty()
    assert not await node.alive()


@pytest.mark.usefixtures("quick_grace")
async def test_a_worker_inside_a_cancelled_scope_ends_too(node: FakeNode) -> None:
    held = Held(node)
    with anyio.fail_after(25):
        async with anyio.create_task_group() as group:
            group.start_soon(held.worker.serve)
            await node.dispatch("async")
            await held.holds(1)
            group.cancel_scope.cancel()
    assert [report.outcome for report in await node.reports()] == ["snoozed"]


async def test_a_crash_inside_the_worker_ends_it_loudly(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(node)

    async def broken(self: Conveyor, queue: str, ids: Any) -> Any:
        raise AssertionError("a bug")

    async with running(held.worker, expect=[ExceptionGroup]) as life:
        await node.dispatch("async")
        await held.holds(1)
        monkeypatch.setattr(Conveyor, "tokens", broken)
        await node.dispatch("async")
        with pytest.raises(ExceptionGroup) as crash:
            await asyncio.wait_for(asyncio.shield(life), 60)
    assert isinstance(crash.value.exceptions[0], AssertionError)
    assert await node.pending() == 2  # for the nodes to see to
