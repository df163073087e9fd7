"""What becomes of an attempt whose effect `exactly_once` has refused."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import psycopg
import pytest
from effects_rig import Effects, apply, attempt, by_asyncpg, looking, new_id
from worker_rig import FakeNode, Report, running, until

from duly.nodes.worker import AlreadyDone, Context, Retry, Superseded, Worker

DUE = "1790000000000"


@pytest.fixture
async def effects(blank_database: str) -> AsyncIterator[Effects]:
    async with looking(blank_database) as made:
        yield made


class Bench:
    """A worker whose handler is the test's; the effect of `done` has been applied by token 5."""

    def __init__(self, node: FakeNode, url: str) -> None:
        self.node = node
        self.url = url
        self.worker = Worker(node.url, id="w1")
        self.done = new_id()

    async def report(self, token: int) -> Report:
        """Run an attempt at `done`; return its report."""
        async with by_asyncpg(self.url) as connection:
            await apply(attempt(5, self.done), connection, {"balance": 90})
        async with running(self.worker):
            await self.node.dispatch("t", task_id=self.done, token=token, due=DUE)
            (report,) = await self.node.wait_reports(1)
            await self.node.empty()
        return report

    async def dropped(self, token: int) -> None:
        """Run an attempt at `done`, which must leave no report."""
        async with by_asyncpg(self.url) as connection:
            await apply(attempt(5, self.done), connection)
        async with running(self.worker):
            await self.node.dispatch("t", task_id=self.done, token=token, due=DUE)
            other = await self.node.dispatch("unknown")
            (report,) = await self.node.wait_reports(1)
            await self.node.empty()
        assert report.id == other


@pytest.fixture
def bench(node: FakeNode, blank_database: str, effects: Effects) -> Bench:
    return Bench(node, blank_database)


async def test_done_already_is_completed_with_the_stored_result(
    bench: Bench, effects: Effects
) -> None:
    @bench.worker.task("t")
    async def handle(ctx: Context) -> Any:
        async with by_asyncpg(bench.url) as connection, ctx.exactly_once(connection) as effect:
            await connection.execute("insert into effects default values")
            effect.result = "again"
        return effect.result

    report = await bench.report(6)
    assert (report.outcome, report.token, report.value) == ("completed", "6", {"balance": 90})
    assert await effects.applied() == 1


async def test_a_handler_s_except_exception_does_not_make_a_failure_of_it(bench: Bench) -> None:
    @bench.worker.task("t")
    async def handle(ctx: Context) -> Any:
        try:
            async with by_asyncpg(bench.url) as connection:
                await apply(ctx, connection)
        except Exception as error:
            raise Retry(delay=60) from error

    assert (await bench.report(6)).value == {"balance": 90}


@pytest.mark.parametrize("depth", [1, 2])
async def test_it_is_understood_through_task_groups(bench: Bench, depth: int) -> None:
    async def nested(ctx: Context, connection: Any, left: int) -> None:
        if left == 0:
            await apply(ctx, connection)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            group.create_task(nested(ctx, connection, left - 1))

    @bench.worker.task("t")
    async def handle(ctx: Context) -> None:
        async with by_asyncpg(bench.url) as connection:
            await nested(ctx, connection, depth)

    assert (await bench.report(6)).value == {"balance": 90}


async def test_beside_another_failure_in_the_group_it_is_a_failure(bench: Bench) -> None:
    async def work(ctx: Context) -> None:
        async with by_asyncpg(bench.url) as connection:
            await apply(ctx, connection)

    async def fail_too() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError("and this")

    @bench.worker.task("t")
    async def handle(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_too())
            group.create_task(work(ctx))

    report = await bench.report(6)
    assert report.outcome == "failed"
    assert "and this" in report.value["traceback"]


async def test_a_handler_may_catch_it_by_name_and_go_on(bench: Bench) -> None:
    @bench.worker.task("t")
    async def handle(ctx: Context) -> Any:
        try:
            async with by_asyncpg(bench.url) as connection:
                await apply(ctx, connection)
        except AlreadyDone as done:
            return {"mailed": True, **done.result}

    assert (await bench.report(6)).value == {"mailed": True, "balance": 90}


async def test_superseded_leaves_no_report(bench: Bench, effects: Effects) -> None:
    @bench.worker.task("t")
    async def handle(ctx: Context) -> None:
        async with asyncio.TaskGroup(), by_asyncpg(bench.url) as connection:
            try:
                await apply(ctx, connection)
            except Exception as error:
                raise Retry(delay=60) from error

    await bench.dropped(4)
    assert await effects.applied() == 1


def blocking_apply(ctx: Context, connection: Any) -> Any:
    with ctx.exactly_once(connection) as effect:
        connection.execute("insert into effects default values")
        effect.result = ctx.attempt
    return effect.result


async def test_a_plain_handler_is_completed_with_the_stored_result(
    bench: Bench, effects: Effects
) -> None:
    @bench.worker.task("t")
    def handle(ctx: Context) -> Any:
        with psycopg.connect(bench.url, connect_timeout=30) as connection:
            return blocking_apply(ctx, connection)

    assert (await bench.report(6)).value == {"balance": 90}
    assert await effects.applied() == 1


async def test_a_plain_handler_that_is_superseded_leaves_no_report(bench: Bench) -> None:
    @bench.worker.task("t")
    def handle(ctx: Context) -> Any:
        with psycopg.connect(bench.url, connect_timeout=30) as connection:
            return blocking_apply(ctx, connection)

    await bench.dropped(4)


async def test_the_effect_of_an_attempt_that_was_cancelled_is_not_begun(
    bench: Bench, effects: Effects
) -> None:
    """A handler that swallows its cancellation comes to its effect all the same."""
    said: list[str] = []

    @bench.worker.task("t")
    async def handle(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("cancelled")
        async with by_asyncpg(bench.url) as connection:
            try:
                await apply(ctx, connection)
            except Superseded:
                said.append("superseded")
                raise

    async with running(bench.worker):
        await bench.node.dispatch("t", timeout="0.2")
        (report,) = await bench.node.wait_reports(1)
        await until(lambda: len(said) == 2, "the handler's end")
    assert report.value["type"] == "timed_out"
    assert said == ["cancelled", "superseded"]
    assert await effects.applied() == 0


async def test_a_lost_connection_in_the_commit_is_a_failure_and_then_done(
    node: FakeNode, bench: Bench, effects: Effects
) -> None:
    """The server has committed; its answer did not arrive."""
    task = new_id()

    @bench.worker.task("t")
    async def handle(ctx: Context) -> Any:
        async with by_asyncpg(bench.url) as connection, ctx.exactly_once(connection) as effect:
            await connection.execute("insert into effects default values")
            effect.result = ctx.attempt
            if ctx.attempt == 1:
                await connection.execute("commit")
                raise asyncpg.ConnectionDoesNotExistError("connection was closed")
        return effect.result

    async with running(bench.worker):
        for token in (1, 2):
            await node.dispatch("t", task_id=task, token=token, attempt=str(token))
            await node.wait_reports(token)
    first, second = await node.reports()
    assert (first.outcome, second.outcome) == ("failed", "completed")
    assert await effects.applied() == 1
