"""The users' own connections: the few things that Duly needs of one.

A driver's module is looked up, not imported: whoever holds a connection of it has loaded it.
"""

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache
from typing import Any, Protocol

_PARAMETER = re.compile(r"\$(\d+)")


class AsyncDriver(Protocol):
    """An async connection."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction; a savepoint if one is open already."""

    async def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        """Run one statement with `$1`, … and return its first row, if there is any."""

    @property
    def commits_each(self) -> bool:
        """Whether no transaction is open, and each statement would be one by itself."""


class BlockingDriver(Protocol):
    """A connection for plain functions."""

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction; a savepoint if one is open already."""

    def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        """Run one statement with `$1`, … and return its first row, if there is any."""

    @property
    def commits_each(self) -> bool:
        """Whether no transaction is open, and each statement would be one by itself."""


def async_driver(connection: object) -> AsyncDriver:
    """Return the driver of an async connection; raises TypeError if there is none."""
    if _is(connection, "asyncpg", "Connection") or _is(
        connection, "asyncpg.pool", "PoolConnectionProxy"
    ):
        return _Asyncpg(connection)
    if _is(connection, "psycopg", "AsyncConnection"):
        return _AsyncPsycopg(connection)
    if _is(connection, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession"):
        return _AsyncAlchemy(connection)
    if _is(connection, "psycopg", "Connection") or _is_plain_alchemy(connection):
        raise TypeError("this connection is not async: use it in a plain function, without await")
    raise _unknown(connection)


def blocking_driver(connection: object) -> BlockingDriver:
    """Return the driver of a connection for plain functions; raises TypeError if there is none."""
    if _is(connection, "psycopg", "Connection"):
        return _Psycopg(connection)
    if _is_plain_alchemy(connection):
        return _Alchemy(connection)
    try:
        async_driver(connection)
    except TypeError:
        raise _unknown(connection) from None
    raise TypeError("this connection is async: use it in an async function, with await")


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of an error of PostgreSQL, by whichever driver; None for any other error."""
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return state if isinstance(state, str) else None


def detail(error: BaseException) -> str | None:
    """The detail of an error of PostgreSQL."""
    original = getattr(error, "orig", error)
    diagnosis = getattr(original, "diag", None)
    found = getattr(original, "detail", None) if diagnosis is None else diagnosis.message_detail
    return found if isinstance(found, str) else None


def _is_plain_alchemy(connection: object) -> bool:
    return _is(connection, "sqlalchemy", "Connection") or _is(
        connection, "sqlalchemy.orm", "Session"
    )


def _is(connection: object, module: str, *names: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(
        connection, tuple(getattr(loaded, name) for name in names)
    )


def _unknown(connection: object) -> TypeError:
    kind = type(connection)
    return TypeError(
        "expected a connection of asyncpg, psycopg 3 or SQLAlchemy, "
        f"not a {kind.__module__}.{kind.__qualname__}"
    )


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def commits_each(self) -> bool:
        return not self._connection.is_in_transaction()

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        block: AbstractAsyncContextManager[Any] = self._connection.transaction()
        return block

    async def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        row: Sequence[Any] | None = await self._connection.fetchrow(sql, *values)
        return row


class _AsyncPsycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def commits_each(self) -> bool:
        return _psycopg_commits_each(self._connection)

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

    @property
    def commits_each(self) -> bool:
        return _psycopg_commits_each(self._connection)

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


def _psycopg_commits_each(connection: Any) -> bool:
    from psycopg.pq import TransactionStatus

    idle = connection.info.transaction_status == TransactionStatus.IDLE
    return bool(connection.autocommit) and idle


class _AsyncAlchemy:
    """A connection or session; either begins a transaction with its first statement."""

    commits_each = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        connection = self._connection
        block: AbstractAsyncContextManager[Any] = (
            connection.begin_nested() if connection.in_transaction() else connection.begin()
        )
        return block

    async def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        result = await self._connection.execute(*_alchemy(sql, values))
        row: Sequence[Any] | None = result.first() if result.returns_rows else None
        return row


class _Alchemy:
    commits_each = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> AbstractContextManager[Any]:
        connection = self._connection
        block: AbstractContextManager[Any] = (
            connection.begin_nested() if connection.in_transaction() else connection.begin()
        )
        return block

    def first_row(self, sql: str, values: Sequence[object]) -> Sequence[Any] | None:
        result = self._connection.execute(*_alchemy(sql, values))
        row: Sequence[Any] | None = result.first() if result.returns_rows else None
        return row


def _alchemy(sql: str, values: Sequence[object]) -> tuple[Any, dict[str, object]]:
    kinds = tuple(type(value) for value in values)
    return _alchemy_text(sql, kinds), {f"p{at}": value for at, value in enumerate(values, 1)}


@cache
def _alchemy_text(sql: str, kinds: tuple[type, ...]) -> Any:
    from sqlalchemy import BigInteger, bindparam, text

    # In brackets: `:p1::text` would be read as another name.
    statement = text(_PARAMETER.sub(r"(:p\1)", sql))
    numbers = [
        bindparam(f"p{at}", type_=BigInteger()) for at, kind in enumerate(kinds, 1) if kind is int
    ]
    return statement.bindparams(*numbers)
