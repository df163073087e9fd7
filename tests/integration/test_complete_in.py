"""`ctx.complete_in`: effect and outcome are one commit, and nothing else can become of the attempt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from node_rig import RunningNode
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy
from waiting import wait_for
from worker_rig import running

import duly
from duly.nodes.client import Run, Task
from duly.nodes.worker import Worker

Handler = Callable[[duly.Context, Any], Awaitable[Any]]


@pytest.fixture
async def bank(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    await connection.execute("create table payments (task text)")
    yield connection
    await connection.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, timeout=30)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def handled_by(redis_url: str, handler: Handler) -> AsyncIterator[None]:
    worker = Worker(redis_url)
    worker.task("pay")(handler)
    async with running(worker):
        yield


async def pay(ctx: duly.Context, connection: Any, result: Any = None) -> None:
    await connection.execute("insert into payments values ($1)", ctx.id)
    await ctx.complete_in(connection, result)


async def payments(bank: Any) -> int:
    return int(await bank.fetchval("select count(*) from payments"))


async def becomes(node: RunningNode, task_id: UUID, status: str) -> Task:
    async def look() -> Task | None:
        task = await node.client.get(task_id)
        return task if task.status == status else None

    return await wait_for(look, 60, f"the task is {status}")


async def runs(node: RunningNode, task_id: UUID) -> list[Run]:
    return [one async for one in node.client.runs(task_id)]


async def left_over(bank: Any) -> int:
    return int(await bank.fetchval("select count(*) from completing"))


async def test_effect_and_outcome_are_one_commit(
    node: RunningNode, redis_url: str, fresh_database: str, bank: Any
) -> None:
    async def handler(ctx: duly.Context, payload: Any) -> Any:
        async with connected(fresh_database) as connection, connection.transaction():
            await pay(ctx, connection, {"paid": payload, "é": 1.50})
            assert await payments(bank) == 0
        return "what it returns does not count any more"

    async with handled_by(redis_url, handler):
        task = await becomes(node, (await node.client.submit("pay", 5)).id, "completed")
    assert task.result == {"paid": 5, "é": 1.5}
    (run,) = await runs(node, task.id)
    assert (run.outcome, run.result, run.error) == ("completed", task.result, None)
    assert run.started_at is not None
    assert run.worker == task.worker
    assert (await payments(bank), await left_over(bank)) == (1, 0)
    assert node.context.vitals.stale_reports == 0


@pytest.mark.parametrize("error", [LookupError, duly.Fail, duly.Retry, duly.Snooze])
async def test_what_the_handler_does_after_the_commit_changes_nothing(
    node: RunningNode, redis_url: str, fresh_database: str, bank: Any, error: type[Exception]
) -> None:
    async def handler(ctx: duly.Context, payload: Any) -> None:
        async with connected(fresh_database) as connection, connection.transaction():
            await pay(ctx, connection, "done")
        raise error(1)

    async with handled_by(redis_url, handler):
        task = await becomes(node, (await node.client.submit("pay")).id, "completed")
    assert task.result == "done"
    assert [one.outcome for one in await runs(node, task.id)] == ["completed"]
    assert await payments(bank) == 1


async def test_rolled_back_nothing_has_happened_and_the_next_attempt_does_it(
    node: RunningNode, redis_url: str, fresh_database: str, bank: Any
) -> None:
    async def handler(ctx: duly.Context, payload: Any) -> None:
        async with connected(fresh_database) as connection, connection.transaction():
            await pay(ctx, connection, ctx.attempt)
            if ctx.attempt == 1:
                raise duly.Retry(0)

    async with handled_by(redis_url, handler):
        task = await becomes(node, (await node.client.submit("pay")).id, "completed")
    assert task.result == 2
    assert [one.outcome for one in await runs(node, task.id)] == ["completed", "failed"]
    assert (await payments(bank), await left_over(bank)) == (1, 0)


async def test_a_periodic_task_goes_on_to_its_next_occurrence(
    node: RunningNode, redis_url: str, fresh_database: str, bank: Any
) -> None:
    async def handler(ctx: duly.Context, payload: Any) -> None:
        async with connected(fresh_database) as connection, connection.transaction():
            await pay(ctx, connection)
        raise LookupError("after the commit")

    async with handled_by(redis_url, handler):
        schedule = duly.Every(0.2, max_runs=3)
        task = await node.client.submit("pay", schedule=schedule, overrun="queue")
        done = await becomes(node, task.id, "completed")
    found = await runs(node, done.id)
    assert [one.outcome for one in found] == ["completed"] * 3
    assert len({one.occurrence for one in found}) == 3
    assert await payments(bank) == 3


async def test_a_key_is_free_for_the_next_task(
    node: RunningNode, redis_url: str, fresh_database: str, bank: Any
) -> None:
    async def handler(ctx: duly.Context, payload: Any) -> None:
        async with connected(fresh_database) as connection, connection.transaction():
            await pay(ctx, connection)

    async with handled_by(redis_url, handler):
        tasks = [await node.client.submit("pay", concurrency_key="k") for _ in range(5)]
        for task in tasks:
            await becomes(node, task.id, "completed")
    assert await payments(bank) == 5


async def test_a_task_that_was_cancelled_meanwhile_takes_its_effect_along(
    node: RunningNode, bank: Any
) -> None:
    task = await node.running_task("pay")
    transaction = bank.transaction()
    await transaction.start()
    await pay(context_of(task), bank)
    assert (await node.client.cancel(task.id)).status == "cancelled"  # and it did not wait
    with pytest.raises(asyncpg.PostgresError) as caught:
        await transaction.commit()
    assert caught.value.sqlstate == "DU002"
    assert await payments(bank) == 0


async def test_once_committed_a_task_cannot_be_cancelled(node: RunningNode, bank: Any) -> None:
    one_off = await node.running_task("pay")
    periodic = await node.running_task("pay", schedule=duly.Every(3600), delay=0)
    for task in (one_off, periodic):
        async with bank.transaction():
            await pay(context_of(task), bank)
        with pytest.raises(duly.Conflict, match="only an unfinished task can be cancelled"):
            await node.client.cancel(task.id)


async def test_without_a_report_the_node_records_it_all_the_same(
    node: RunningNode, bank: Any
) -> None:
    task = await node.running_task("pay", max_retries=0)
    async with bank.transaction():
        await pay(context_of(task), bank, [1])
    done = await becomes(node, task.id, "completed")
    assert done.result == [1]
    (run,) = await runs(node, task.id)
    assert (run.outcome, run.result, run.worker) == ("completed", [1], "w1")


async def test_an_attempt_is_completed_once_and_only_under_its_token(
    node: RunningNode, bank: Any
) -> None:
    task = await node.running_task("pay")
    with pytest.raises(duly.Superseded):
        async with bank.transaction():
            await pay(context_of(task, task.version - 1), bank)
    transaction = bank.transaction()
    await transaction.start()
    await pay(context_of(task), bank)
    with pytest.raises(asyncpg.UniqueViolationError, match="twice in one transaction"):
        await pay(context_of(task), bank)
    await transaction.rollback()
    async with bank.transaction():
        await pay(context_of(task), bank, {"a": "b"})
    for _ in range(2):
        with pytest.raises(duly.AlreadyDone) as done:
            async with bank.transaction():
                await pay(context_of(task), bank)
        assert done.value.result == {"a": "b"}
        await becomes(node, task.id, "completed")
    assert await payments(bank) == 1


async def test_of_two_transactions_of_one_attempt_one_commits(
    node: RunningNode, fresh_database: str, bank: Any
) -> None:
    task = await node.running_task("pay")

    async def attempt() -> None:
        async with connected(fresh_database) as connection, connection.transaction():
            await pay(context_of(task), connection)

    answers = await asyncio.gather(*(attempt() for _ in range(4)), return_exceptions=True)
    assert answers.count(None) == 1, answers
    assert await payments(bank) == 1


async def test_a_connection_without_a_transaction_and_a_result_too_long_are_refused(
    node: RunningNode, bank: Any
) -> None:
    ctx = context_of(await node.running_task("pay"))
    with pytest.raises(RuntimeError, match="no transaction is open"):
        await ctx.complete_in(bank)
    with pytest.raises(duly.Fail, match="more than 262144"):
        async with bank.transaction():
            await ctx.complete_in(bank, "x" * 262_144)
    with pytest.raises(TypeError, match="is async"):
        ctx.complete_in_sync(bank)


async def test_by_sqlalchemy_and_psycopg(node: RunningNode, fresh_database: str, bank: Any) -> None:
    url = fresh_database.replace("postgresql://", "postgresql+psycopg://")
    task = await node.running_task("pay")
    engine = alchemy.create_async_engine(url)
    async with alchemy.AsyncSession(engine) as session, session.begin():
        await context_of(task).complete_in(session, 1)
    with pytest.raises(duly.AlreadyDone) as done:
        async with alchemy.AsyncSession(engine) as session, session.begin():
            await context_of(task).complete_in(session, 2)
    assert done.value.result == 1
    await engine.dispose()
    plain = sqlalchemy.create_engine(url)
    task = await node.running_task("pay")
    with orm.Session(plain) as session:
        context_of(task).complete_in_sync(session, 3)
        session.commit()
    plain.dispose()
    with psycopg.connect(fresh_database) as connection, pytest.raises(duly.AlreadyDone) as done:
        context_of(task).complete_in_sync(connection)
    assert done.value.result == 3


async def test_a_user_needs_the_right_to_execute_it_and_no_other(
    node: RunningNode, bank: Any
) -> None:
    role = f"bank_{node.context.node_id[-8:]}"
    task = await node.running_task("pay")
    await bank.execute(f"create role {role}; grant usage on schema duly to {role}")
    try:
        await bank.execute(f"set role {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with bank.transaction():
                await context_of(task).complete_in(bank)
        await bank.execute(
            "reset role; grant execute on function duly.complete(uuid, bigint, jsonb, text) "
            f"to {role}; set role {role}; create temp table tasks (id uuid)"
        )
        async with bank.transaction():
            await context_of(task).complete_in(bank)
        await becomes(node, task.id, "completed")
    finally:
        await bank.execute(f"reset role; drop owned by {role}; drop role {role}")


def context_of(task: Task, token: int | None = None) -> duly.Context:
    """As a worker has it that was given the task."""
    return duly.Context(
        id=str(task.id), type=task.type, queue=task.queue, token=task.version if token is None else token, attempt=1,
        due_us=0, deadline=1e12, worker="w1",
    )  # fmt: skip
