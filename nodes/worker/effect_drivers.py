"""The users' own connections: the two things that a guarded effect needs of one.

A driver's module is looked up, not imported: whoever holds a connection of it has loaded it.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol


class AsyncDriver(Protocol):
    """An async connection."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction; a savepoint if one is open already."""

    async def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        """Run one statement with `$1`, … and return its first row, if there is any."""


class BlockingDriver(Protocol):
    """A connection for plain functions."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction; a savepoint if one is open already."""

    def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        """Run one statement with `$1`, … and return its first row, if there is any."""


def async_driver(connection: object) -> AsyncDriver:
    """Return the driver of an async connection; raises TypeError if there is none."""
    asyncpg, psycopg = sys.modules.get("asyncpg"), sys.modules.get("psycopg")
    if asyncpg and isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return _Asyncpg(connection)
    if psycopg and isinstance(connection, psycopg.AsyncConnection):
        return _AsyncPsycopg(connection)
    if psycopg and isinstance(connection, psycopg.Connection):
        raise TypeError("this connection is not async: `with`, not `async with`")
    raise _unknown(connection)


def blocking_driver(connection: object) -> BlockingDriver:
    """Return the driver of a connection for plain functions; raises TypeError if there is none."""
    asyncpg, psycopg = sys.modules.get("asyncpg"), sys.modules.get("psycopg")
    if psycopg and isinstance(connection, psycopg.Connection):
        return _Psycopg(connection)
    if (psycopg and isinstance(connection, psycopg.AsyncConnection)) or (
        asyncpg and isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)
    ):
        raise TypeError("this connection is async: `async with`, not `with`")
    raise _unknown(connection)


def _unknown(connection: object) -> TypeError:
    kind = type(connection)
    return TypeError(
        "exactly_once takes a connection of asyncpg or psycopg 3, "
        f"not a {kind.__module__}.{kind.__qualname__}"
    )


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        block: AbstractAsyncContextManager[Any] = self._connection.transaction()
        return block

    async def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        row: Sequence[Any] | None = await self._connection.fetchrow(sql, *values)
        return row


class _AsyncPsycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        block: AbstractAsyncContextManager[Any] = self._connection.transaction()
        return block

    async def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        from psycopg import AsyncRawCursor
        from psycopg.rows import tuple_row

        async with AsyncRawCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), values)
            row: Sequence[Any] | None = await cursor.fetchone() if cursor.description else None
            return row


class _Psycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> AbstractContextManager[Any]:
        block: AbstractContextManager[Any] = self._connection.transaction()
        return block

    def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        with RawCursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(sql.encode(), values)
            row: Sequence[Any] | None = cursor.fetchone() if cursor.description else None
            return row
