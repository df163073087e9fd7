"""Before a handler runs: the token check, repeats, cancellation."""

import asyncio
import json
import threading
from typing import Any

import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker
from duly.storage import keys
from duly.storage.conveyor import Conveyor


class Gate:
    """A worker with one handler that waits to be let through."""

    def __init__(self, node: FakeNode, **options: Any) -> None:
        self.worker = Worker(node.url, id="w1", **options)
        self.open = asyncio.Event()
        self.started: list[Context] = []
        self.worker.task("t")(self._handle)

    async def _handle(self, ctx: Context) -> None:
        self.started.append(ctx)
        await self.open.wait()

    async def holds(self, count: int) -> None:
        """Wait until `count` handlers have started."""
        await until(lambda: len(self.started) == count, f"{count} handlers")


async def cancel(node: FakeNode, **message: Any) -> None:
    assert await node.call("PUBLISH", keys.control("w1"), json.dumps(message)) == 1


@pytest.mark.parametrize("inflight", [None, 6, 8])
async def test_what_is_not_in_flight_under_its_token_is_dropped(
    node: FakeNode, inflight: int | None
) -> None:
    gate = Gate(node)
    gate.open.set()
    async with running(gate.worker):
        await node.dispatch("t", token=7, inflight=inflight)
        wanted = await node.dispatch("t", token=7)
        (report,) = await node.wait_reports(1)
        await node.empty()
    assert report.id == wanted
    assert [ctx.id for ctx in gate.started] == [wanted]


async def test_a_second_copy_is_not_run_and_goes_with_the_first(node: FakeNode) -> None:
    gate = Gate(node)
    async with running(gate.worker):
        task_id = await node.dispatch("t", token=7)
        await gate.holds(1)
        await node.dispatch("t", task_id=task_id, token=7)
        await until(lambda: _pending(node, 2))
        gate.open.set()
        await node.wait_reports(1)
        await node.empty()
    assert len(gate.started) == 1
    assert len(await node.reports()) == 1


async def test_a_copy_that_comes_after_the_outcome_repeats_the_report(node: FakeNode) -> None:
    worker = Worker(node.url)
    go_on = threading.Event()

    @worker.task("t")
    def handler(ctx: Context) -> None:
        go_on.wait(120)

    async with running(worker):
        task_id = await node.dispatch("t", token=7, timeout="0.05")
        await node.wait_reports(1)
        await node.dispatch("t", task_id=task_id, token=7)
        reports = await node.wait_reports(2)
        await node.empty()
        go_on.set()
    assert reports[0].fields == reports[1].fields


async def test_a_newer_token_of_a_running_task_is_a_new_attempt(node: FakeNode) -> None:
    gate = Gate(node)
    async with running(gate.worker):
        task_id = await node.dispatch("t", token=7)
        await gate.holds(1)
        await node.dispatch("t", task_id=task_id, token=8)
        await gate.holds(2)
        gate.open.set()
        reports = await node.wait_reports(2)
    assert sorted(report.token for report in reports) == ["7", "8"]


async def test_a_cancelled_handler_stops_and_reports_nothing(node: FakeNode) -> None:
    gate = Gate(node)
    async with running(gate.worker):
        task_id = await node.dispatch("t", token=7)
        await gate.holds(1)
        await until(node.listening)
        await cancel(node, cancel=task_id, token=7)
        await node.empty()
        assert gate.started[0].cancelled
        assert await node.reports() == []


async def test_a_cancelled_plain_handler_is_told_and_reports_nothing(node: FakeNode) -> None:
    worker = Worker(node.url, id="w1")
    seen: list[Context] = []
    go_on = threading.Event()

    @worker.task("t")
    def handler(ctx: Context) -> None:
        seen.append(ctx)
        go_on.wait(120)

    async with running(worker):
        task_id = await node.dispatch("t", token=7)
        await until(lambda: len(seen) == 1)
        await until(node.listening)
        await cancel(node, cancel=task_id, token="7")
        await node.empty()
        assert seen[0].cancelled
        go_on.set()
    assert await node.reports() == []


async def test_a_cancellation_for_another_attempt_or_without_sense_changes_nothing(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(node)
    async with running(gate.worker):
        task_id = await node.dispatch("t", token=7)
        await gate.holds(1)
        await until(node.listening)
        await cancel(node, cancel=task_id, token=6)
        await cancel(node, cancel="someone else", token=7)
        await cancel(node, nonsense=1)
        await until(lambda: any("control message" in m for m in caplog.messages))
        assert not gate.started[0].cancelled
        gate.open.set()
        (report,) = await node.wait_reports(1)
    assert report.outcome == "completed"


async def test_c29_a_cancellation_during_the_token_check_is_not_missed(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C29: read by a worker, not yet begun; the check has already said yes."""
    gate = Gate(node)
    gate.open.set()
    check = Conveyor.tokens
    checked = asyncio.Event()
    go_on = asyncio.Event()

    async def slow_check(self: Conveyor, queue: str, ids: list[str]) -> list[bytes | None]:
        answer = await check(self, queue, ids)
        checked.set()
        await go_on.wait()
        return answer

    monkeypatch.setattr(Conveyor, "tokens", slow_check)
    async with running(gate.worker):
        await until(node.listening)
        task_id = await node.dispatch("t", token=7)
        await checked.wait()
        await cancel(node, cancel=task_id, token=7)
        await cancel(node, cancel=task_id, token=7)
        await until(lambda: _heard(gate.worker, task_id))
        go_on.set()
        await node.empty()
    assert gate.started == []
    assert await node.reports() == []


async def _pending(node: FakeNode, count: int) -> bool:
    return await node.pending() == count


def _heard(worker: Worker, task_id: str) -> bool:
    session = worker._session
    assert session is not None
    return session._runner._expected.get((task_id, 7), False)
