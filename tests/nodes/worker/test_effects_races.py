"""Two attempts at one effect at the same time: whatever the order and the isolation, it happens once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
from effects_rig import (
    Effects,
    apply,
    attempt,
    by_asyncpg,
    found_done,
    looking,
    new_id,
)
from waiting import wait_for

from duly.nodes.worker import AlreadyDone, create_effects_table
from duly.nodes.worker.context import Context

HIGHER = ("repeatable_read", "serializable")


@pytest.fixture
async def effects(blank_database: str) -> AsyncIterator[Effects]:
    async with looking(blank_database) as made, by_asyncpg(blank_database) as connection:
        await create_effects_table(connection)
        yield made


class Held:
    """An attempt in the middle of its block, until it is let go."""

    def __init__(self, ctx: Context, connection: Any) -> None:
        self._go = asyncio.Event()
        self._inside = asyncio.Event()
        self._fails = False
        self.task = asyncio.create_task(self._work(ctx, connection))

    async def _work(self, ctx: Context, connection: Any) -> None:
        async with ctx.exactly_once(connection) as effect:
            await connection.execute("insert into effects default values")
            effect.result = "held"
            self._inside.set()
            await self._go.wait()
            if self._fails:
                raise LookupError

    async def inside(self) -> "Held":
        await asyncio.wait_for(self._inside.wait(), 30)
        return self

    async def end(self, *, fails: bool = False) -> None:
        self._fails = fails
        self._go.set()
        await asyncio.wait([self.task], timeout=30)
        assert (self.task.exception() is not None) == fails


async def isolated(ctx: Context, connection: Any, isolation: str) -> None:
    async with connection.transaction(isolation=isolation):
        await apply(ctx, connection, "second")


@pytest.mark.parametrize("tokens", [(1, 2), (2, 2)], ids=["newer", "same token"])
async def test_the_second_waits_and_sees_the_first(
    blank_database: str, effects: Effects, tokens: Sequence[int]
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as one, by_asyncpg(blank_database) as two:
        first = await Held(attempt(tokens[0], task), one).inside()
        second = asyncio.create_task(found_done(attempt(tokens[1], task), two))
        await wait_for(effects.waiting, 30, "the second waits")
        await first.end()
        assert await asyncio.wait_for(second, 30) == "held"
    assert await effects.applied() == 1


@pytest.mark.parametrize("isolation", ["read_committed", *HIGHER])
async def test_the_second_waits_and_goes_on_when_the_first_has_failed(
    blank_database: str, effects: Effects, isolation: str
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as one, by_asyncpg(blank_database) as two:
        first = await Held(attempt(1, task), one).inside()
        second = asyncio.create_task(isolated(attempt(2, task), two, isolation))
        await wait_for(effects.waiting, 30, "the second waits")
        await first.end(fails=True)
        await asyncio.wait_for(second, 30)
        assert await found_done(attempt(3, task), one) == "second"
    assert await effects.applied() == 1


@pytest.mark.parametrize("isolation", HIGHER)
async def test_with_an_older_snapshot_it_is_a_serialization_error_and_then_done(
    blank_database: str, effects: Effects, isolation: str
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as one, by_asyncpg(blank_database) as two:
        first = await Held(attempt(1, task), one).inside()
        second = asyncio.create_task(isolated(attempt(2, task), two, isolation))
        await wait_for(effects.waiting, 30, "the second waits")
        await first.end()
        with pytest.raises(asyncpg.SerializationError):
            await asyncio.wait_for(second, 30)
        with pytest.raises(AlreadyDone):
            await isolated(attempt(3, task), two, isolation)
    assert await effects.applied() == 1


@pytest.mark.parametrize("isolation", HIGHER)
async def test_a_snapshot_from_before_the_first_s_commit_never_applies_it_again(
    blank_database: str, effects: Effects, isolation: str
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as one, by_asyncpg(blank_database) as two:
        snapshot = two.transaction(isolation=isolation)
        await snapshot.start()
        await two.fetchval("select count(*) from effects")
        await apply(attempt(1, task), one)
        with pytest.raises(asyncpg.SerializationError):
            await apply(attempt(2, task), two)
        await snapshot.rollback()
    assert await effects.applied() == 1


async def test_an_attempt_whose_connection_is_cut_holds_nobody_up(
    blank_database: str, effects: Effects
) -> None:
    task = new_id()
    async with by_asyncpg(blank_database) as one, by_asyncpg(blank_database) as two:
        pid = await one.fetchval("select pg_backend_pid()")
        first = await Held(attempt(1, task), one).inside()
        second = asyncio.create_task(apply(attempt(2, task), two, "second"))
        await wait_for(effects.waiting, 30, "the second waits")
        await effects.execute(f"select pg_terminate_backend({pid})")
        await asyncio.wait_for(second, 30)
        await first.end(fails=True)
        assert isinstance(
            first.task.exception(),
            (
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
                OSError,
            ),
        )
    assert await effects.applied() == 1


async def test_many_attempts_at_once_apply_it_once(blank_database: str, effects: Effects) -> None:
    task = new_id()
    seen: list[str] = []

    async def one(pool: Any, token: int) -> None:
        async with pool.acquire() as connection:
            try:
                await apply(attempt(token, task), connection, token)
            except BaseException as error:  # noqa: BLE001 - what it is, is looked at
                seen.append(type(error).__name__)
            else:
                seen.append("applied")

    async with asyncpg.create_pool(blank_database, min_size=10, max_size=10) as pool:
        await asyncio.gather(*(one(pool, token) for token in range(1, 21)))
    assert seen.count("applied") == 1
    assert set(seen) <= {"applied", "AlreadyDone", "Superseded"}
    assert await effects.applied() == 1
