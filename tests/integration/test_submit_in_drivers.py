"""`submit_in` and `submit_in_sync` by every kind of connection that they take."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy

import duly

DUE = datetime(2040, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, timeout=30)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    pool = asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool, pool.acquire() as one, one.transaction():
        yield one


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=30) as connection:
        yield connection


def alchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def by_alchemy_session(url: str) -> AsyncIterator[Any]:
    engine = alchemy.create_async_engine(alchemy_url(url, "asyncpg"))
    try:
        async with alchemy.AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_alchemy_connection(url: str) -> AsyncIterator[Any]:
    engine = alchemy.create_async_engine(alchemy_url(url, "psycopg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@contextmanager
def by_plain_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url, connect_timeout=30) as connection:
        yield connection


@contextmanager
def by_plain_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy_url(url, "psycopg"))
    try:
        with orm.Session(engine) as session:
            yield session
            session.commit()
    finally:
        engine.dispose()


@contextmanager
def by_plain_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(alchemy_url(url, "psycopg"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


ASYNC = [by_asyncpg, by_asyncpg_pool, by_psycopg, by_alchemy_session, by_alchemy_connection]
PLAIN = [by_plain_psycopg, by_plain_session, by_plain_connection]
OPTIONS: dict[str, Any] = {
    "run_at": DUE, "timeout": timedelta(minutes=5), "tags": {"a": "b:c"}, "idempotency_key": "k",
}  # fmt: skip
PAYLOAD = {"é": [1, 2.5, None, 10**30], "colon": ":p1 $1 %s"}


@pytest.fixture
async def look(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    yield connection
    await connection.close()


async def check(look: Any, task_id: UUID) -> None:
    rows = await look.fetch("select * from tasks")
    assert [row["id"] for row in rows] == [task_id]
    task = rows[0]
    assert (task["type"], task["next_run_at"], task["timeout"]) == ("t", DUE, 300)
    assert await look.fetchval(
        "select payload = $1 and tags = $2 from tasks",
        '{"é": [1, 2.5, null, 1e30], "colon": ":p1 $1 %s"}',
        '{"a": "b:c"}',
    )


@pytest.mark.parametrize("connect", ASYNC)
async def test_async(fresh_database: str, look: Any, connect: Any) -> None:
    async with connect(fresh_database) as connection:
        task_id = await duly.submit_in(connection, "t", PAYLOAD, **OPTIONS)
        assert task_id == await duly.submit_in(connection, "t", PAYLOAD, **OPTIONS)
        assert await look.fetchval("select count(*) from tasks") == 0
    await check(look, task_id)

    async def fail() -> None:
        async with connect(fresh_database) as connection:
            await duly.submit_in(connection, "t")
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    await check(look, task_id)


@pytest.mark.parametrize("connect", PLAIN)
async def test_plain(fresh_database: str, look: Any, connect: Any) -> None:
    with connect(fresh_database) as connection:
        task_id = duly.submit_in_sync(connection, "t", PAYLOAD, **OPTIONS)
        assert task_id == duly.submit_in_sync(connection, "t", PAYLOAD, **OPTIONS)
    await check(look, task_id)

    def fail() -> None:
        with connect(fresh_database) as connection:
            duly.submit_in_sync(connection, "t")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    await check(look, task_id)


async def test_the_wrong_kind_of_connection_or_option_is_named(fresh_database: str) -> None:
    async with by_asyncpg(fresh_database) as connection:
        with pytest.raises(TypeError, match="is async: use it in an async function"):
            duly.submit_in_sync(connection, "t")
        with pytest.raises(TypeError, match="unknown option 'surprise'"):
            await duly.submit_in(connection, "t", surprise=1)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="run_at needs a time zone"):
            await duly.submit_in(connection, "t", run_at=datetime(2040, 1, 1))
        with pytest.raises(
            TypeError, match=r"asyncpg, psycopg 3 or SQLAlchemy, not a builtins\.str"
        ):
            await duly.submit_in("postgresql://", "t")
    with by_plain_session(fresh_database) as session, pytest.raises(TypeError, match="not async"):
        await duly.submit_in(session, "t")


async def test_an_error_of_postgresql_is_the_drivers_own(fresh_database: str) -> None:
    with by_plain_psycopg(fresh_database) as connection:
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            duly.submit_in_sync(connection, "t", priority=10)
        assert caught.value.diag.column_name == "priority"
        connection.rollback()
