"""What surrounds handlers: the lifespan of the worker, and middleware."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import cpu_handlers
import pytest
from worker_rig import FakeNode, running, until

import duly
from duly.nodes.worker import Context, Worker


async def test_a_lifespan_is_open_from_the_first_task_to_the_last(node: FakeNode) -> None:
    worker = Worker(node.url, id="w1")
    course: list[str] = []

    @worker.lifespan
    async def pools() -> AsyncIterator[dict[str, int]]:
        course.append("opened")
        yield {"pool": 7}
        course.append("closed")

    @worker.task("t")
    async def handle(ctx: Context) -> int:
        course.append("handled")
        value: int = ctx.state["pool"]
        return value

    async with running(worker):
        await node.dispatch("t")
        (report,) = await node.wait_reports(1)
        assert course == ["opened", "handled"]
    assert report.value == 7
    assert course == ["opened", "handled", "closed"]


async def test_a_lifespan_that_fails_ends_the_worker_before_it_takes_a_task(node: FakeNode) -> None:
    worker = Worker(node.url, id="w1")

    @worker.lifespan
    async def pools() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    await node.dispatch("t")
    with pytest.raises(OSError, match="no database"):
        await asyncio.wait_for(worker.serve(), 60)
    assert await node.left() == 1
    assert not await node.alive()


async def test_there_is_one_lifespan_and_it_yields(node: FakeNode) -> None:
    worker = Worker(node.url)

    async def once() -> AsyncIterator[None]:
        yield

    async def never() -> None: ...

    with pytest.raises(TypeError, match="yields once"):
        worker.lifespan(never)  # type: ignore[type-var]
    worker.lifespan(once)
    with pytest.raises(ValueError, match="already"):
        worker.lifespan(once)
    with pytest.raises(TypeError, match="async function"):
        worker.middleware(lambda ctx, call_next: call_next(ctx))


def wrapped(node: FakeNode) -> tuple[Worker, list[str]]:
    worker, course = Worker(node.url, id="w1", processes=1), []

    @worker.middleware
    async def outer(ctx: Context, call_next: duly.Next) -> Any:
        course.append(f"outer {ctx.type}")
        try:
            return {"outer": await call_next(ctx)}
        finally:
            course.append("outer ends")

    @worker.middleware
    async def inner(ctx: Context, call_next: duly.Next) -> Any:
        course.append("inner")
        try:
            return await call_next(ctx)
        except LookupError:
            raise duly.Fail("known") from None

    return worker, course


@pytest.mark.parametrize("place", ["loop", "thread", "process"])
async def test_middleware_surrounds_every_attempt(node: FakeNode, place: str) -> None:
    worker, course = wrapped(node)

    @worker.task("loop")
    async def on_loop(ctx: Context, payload: dict[str, int]) -> int:
        return payload["n"]

    @worker.task("thread")
    def in_thread(ctx: Context, payload: dict[str, int]) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return payload["n"]

    worker.task("process", process=True)(cpu_handlers.where)
    async with running(worker):
        await node.dispatch(place, '{"n": 5}')
        (report,) = await node.wait_reports(1)
    value = report.value["outer"]
    assert (value["n"] if place == "process" else value) == 5
    assert course == [f"outer {place}", "inner", "outer ends"]


@pytest.mark.parametrize("plain", [False, True])
async def test_middleware_sees_what_is_raised(node: FakeNode, plain: bool) -> None:
    worker, course = wrapped(node)

    async def later(ctx: Context) -> None:
        raise KeyError("x")

    def now(ctx: Context) -> None:
        raise KeyError("x")

    worker.task("t")(now if plain else later)
    async with running(worker):
        await node.dispatch("t")
        (report,) = await node.wait_reports(1)
    assert (report.outcome, report.value["type"], report.retry) == ("failed", "Fail", "0")
    assert course[-1] == "outer ends"


async def test_a_cancelled_thread_within_middleware_keeps_its_slot_until_it_ends(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.worker.runner.CANCEL_GRACE_S", 0.1)
    worker, course = wrapped(node)
    may_end, begun = threading.Event(), threading.Event()

    @worker.task("t")
    def block(ctx: Context) -> str:
        begun.set()
        may_end.wait(120)
        return "late"

    async with running(worker):
        await node.dispatch("t", timeout="0.5")
        (report,) = await node.wait_reports(1)
        assert (report.outcome, report.value["type"]) == ("failed", "timed_out")
        assert worker._session is not None
        assert worker._session._runner.running == 1
        assert "outer ends" not in course
        may_end.set()
        session = worker._session
        await until(lambda: session._runner.running == 0, "a free slot")
    assert course[-1] == "outer ends"
    assert len(await node.reports()) == 1
