"""A user's own database, and attempts that change it through `exactly_once`."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg

from duly.nodes.worker.context import Context
from duly.nodes.worker.outcomes import AlreadyDone

Connect = Callable[[str], AbstractAsyncContextManager[Any]]
DUE_US = 1_790_000_000_000_000


def attempt(token: int, task_id: str, *, later_s: int = 0) -> Context:
    """The context of one attempt; `later_s`: of an occurrence so much later."""
    return Context(
        id=task_id, type="t", queue="default", token=token, attempt=token, worker="w1",
        due_us=DUE_US + later_s * 1_000_000, deadline=1e12,
    )  # fmt: skip


def new_id() -> str:
    """A task's id."""
    return str(uuid.uuid4())


async def apply(ctx: Context, connection: Any, result: Any = None) -> None:
    """The effect: one row more."""
    async with ctx.exactly_once(connection) as effect:
        await connection.execute("insert into effects default values")
        effect.result = result


async def found_done(ctx: Context, connection: Any) -> Any:
    """The stored result; fails unless the effect has been applied before."""
    try:
        await apply(ctx, connection)
    except AlreadyDone as done:
        return done.result
    raise AssertionError("the effect was applied a second time")


async def apply_and_fail(ctx: Context, connection: Any) -> None:
    """An effect whose block ends with a LookupError."""
    async with ctx.exactly_once(connection):
        await connection.execute("insert into effects default values")
        raise LookupError


class Effects:
    """Looks at the user's database through a connection of its own."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def applied(self) -> int:
        """How often an effect was applied and committed."""
        return int(await self._connection.fetchval("select count(*) from effects"))

    async def guards(self) -> int:
        """Rows of `duly_effects`."""
        return int(await self._connection.fetchval("select count(*) from duly_effects"))

    async def waiting(self) -> bool:
        """Whether some connection to this database waits for a lock."""
        return bool(
            await self._connection.fetchval(
                "select count(*) from pg_stat_activity "
                "where datname = current_database() and wait_event_type = 'Lock'"
            )
        )

    async def execute(self, sql: str) -> None:
        """Any statement."""
        await self._connection.execute(sql)


@asynccontextmanager
async def looking(url: str) -> AsyncIterator[Effects]:
    """Make the table that effects go to, and look at it."""
    connection = await asyncpg.connect(url, timeout=30)
    try:
        await connection.execute("create table effects (id bigserial)")
        yield Effects(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    """A connection."""
    connection = await asyncpg.connect(url, timeout=30)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    """A connection of a pool."""
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as one:
        yield one


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Any]:
    """A connection that begins a transaction with its first statement, as is psycopg's way."""
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=30) as connection:
        yield connection


@asynccontextmanager
async def by_psycopg_autocommit(url: str) -> AsyncIterator[Any]:
    """A connection in autocommit mode."""
    connected = psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=30)
    async with await connected as connection:
        yield connection


CONNECTS: list[Connect] = [by_asyncpg, by_asyncpg_pool, by_psycopg, by_psycopg_autocommit]
