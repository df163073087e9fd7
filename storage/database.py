"""Connections to PostgreSQL, and the one way to run a statement.

A statement is never cancelled from here. Cancelling a write makes asyncpg ask the server to cancel
it, and a commit that waits for a standby then *succeeds* while it looks failed. So a statement runs
to its end in a task of its own: the server bounds it (`statement_timeout`), and if the server does
not answer at all the connection is cut and the outcome is in doubt. Whoever awaited it and was
cancelled learns nothing; the connection goes back to the pool only when the statement has ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from duly.storage.errors import StoreUnavailableError
from duly.storage.queries import statements

T = TypeVar("T")

log = logging.getLogger("duly.database")

_CONNECT_TIMEOUT_S = 5.0
# Beyond statement_timeout, for the answer to arrive. With the usual 3 s for a connection and 5 s for
# a statement, a caller knows within 10 s.
_ANSWER_MARGIN_S = 1.5

_TRANSIENT = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.OutOfMemoryError,
    asyncpg.DiskFullError,
    OSError,
    TimeoutError,
)


class Database:
    """A pool of connections to one PostgreSQL.

    `pool_size` connections at most, made when first needed. Every call raises
    `StoreUnavailableError` when the server cannot be reached or does not answer in time; other
    errors of PostgreSQL come as asyncpg raises them.
    """

    def __init__(
        self,
        dsn: str,
        *,
        application: str = "duly",
        pool_size: int = 8,
        statement_timeout_s: float = 5.0,
        acquire_timeout_s: float = 3.0,
    ) -> None:
        self._dsn = dsn
        self._application = application
        self._pool_size = pool_size
        self._statement_timeout_s = statement_timeout_s
        self._acquire_timeout_s = acquire_timeout_s
        self._pool: Any = None
        self._running: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Prepare the pool. Connects to nothing yet."""
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._pool_size,
            timeout=_CONNECT_TIMEOUT_S,
            max_inactive_connection_lifetime=60.0,
            reset=_leave_as_it_is,
            server_settings={
                "application_name": self._application,
                "statement_timeout": str(round(self._statement_timeout_s * 1000)),
                "idle_in_transaction_session_timeout": "10000",
                "synchronous_commit": "on",
                "timezone": "UTC",
                # One plan for the batch sizes that occur: costs less than planning each time.
                "jit": "off",
            },
        )

    async def close(self) -> None:
        """Wait for what runs, then close every connection."""
        if self._pool is None:
            return
        if self._running:
            await asyncio.wait(self._running, timeout=self._limit_s)
        try:
            await asyncio.wait_for(self._pool.close(), timeout=2.0)
        except TimeoutError:
            self._pool.terminate()

    @property
    def _limit_s(self) -> float:
        return self._statement_timeout_s + _ANSWER_MARGIN_S

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        """Run the statement called `name` by itself and return its rows."""
        sql = self.sql(name)

        async def call(connection: Any) -> list[Any]:
            rows: list[Any] = await connection.fetch(sql, *args)
            return rows

        return await self.run(call)

    @staticmethod
    def sql(name: str) -> str:
        """The text of the statement called `name`."""
        return statements()[name]

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run `work(connection)` to its end, whatever becomes of the caller."""
        task = asyncio.ensure_future(self._run(work))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone: then nobody else looks

    async def _run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        try:
            connection = await self._pool.acquire(timeout=self._acquire_timeout_s)
        except (*_TRANSIENT, asyncpg.InterfaceError) as error:
            raise StoreUnavailableError(f"no connection to PostgreSQL: {_text(error)}") from error
        try:
            return await self._bounded(connection, work)
        except asyncpg.InterfaceError as error:
            if not _is_lost(connection):
                raise  # our own mistake, such as a value that does not fit its parameter
            raise StoreUnavailableError(f"PostgreSQL: {_text(error)}", in_doubt=True) from error
        except _TRANSIENT as error:
            if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                _cut(connection)  # no longer the writer: the next one may be elsewhere
            raise StoreUnavailableError(f"PostgreSQL: {_text(error)}", in_doubt=True) from error
        finally:
            await self._give_back(connection)

    async def _give_back(self, connection: Any) -> None:
        """The statement has ended, whatever becomes of its connection now."""
        try:
            await self._pool.release(connection)
        except (*_TRANSIENT, asyncpg.InterfaceError) as error:
            log.debug("a connection was lost on its way back to the pool: %s", _text(error))

    async def _bounded(self, connection: Any, work: Callable[[Any], Awaitable[T]]) -> T:
        inner = asyncio.ensure_future(work(connection))
        done, _ = await asyncio.wait({inner}, timeout=self._limit_s)
        if not done:
            _cut(connection)
            # Its loss ends what waits on it. Cancelling first would send a request to cancel.
            done, _ = await asyncio.wait({inner}, timeout=1.0)
            if not done:
                inner.cancel()
                await asyncio.wait({inner}, timeout=1.0)
            raise TimeoutError(f"no answer within {self._limit_s:g} s")
        return inner.result()


async def _leave_as_it_is(connection: Any) -> None:
    """Resetting costs a round trip after each statement, and none of ours changes its session."""


def _is_lost(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # lost so early that the pool has dropped it already
        return True


def _cut(connection: Any) -> None:
    if not _is_lost(connection):
        connection.terminate()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
