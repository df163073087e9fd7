"""Connections to PostgreSQL, and the one way to run a statement.

A statement is never cancelled from here. Cancelling a write makes asyncpg ask the server to cancel
it, and a commit that waits for a standby then *succeeds* while it looks failed. So a statement runs
to its end in a task of its own, and the server bounds it (`statement_timeout`). If the server does
not answer at all, its outcome is in doubt, and its connection serves nobody until the statement has
ended: neither cut while its commit waits for a standby, nor used again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import asyncpg

from duly.storage.doubts import Doubts
from duly.storage.errors import Doubt, StoreUnavailableError
from duly.storage.pool import Pool
from duly.storage.pooled import in_transaction
from duly.storage.queries import statements
from duly.storage.writer import Writer

T = TypeVar("T")

Timed = Callable[[str, float, bool], None]
"""Is told a statement's name, the seconds until its answer, and whether it failed instead."""

# Beyond statement_timeout, for the answer to arrive. With the usual 3 s for a connection and 5 s for
# a statement, a caller knows within 10 s.
_ANSWER_MARGIN_S = 1.5
_LOOK_EVERY_S = 0.1

# The connection is gone, or its session was ended from outside.
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,  # the driver does not know any more where it is
    OSError,  # TimeoutError too
)
# The server could not do it now. It said so: nothing has been done.
_REFUSED = (
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.LockNotAvailableError,
    asyncpg.TransactionRollbackError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
)
_ELSEWHERE = "DU001"  # raised by duly_slot_elsewhere
_BY_INDEX = {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
# The schema changed since the statement was prepared; nothing has been done.
_OUTDATED = (asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError)


class Database:
    """A pool of connections to one PostgreSQL.

    `pool_size` connections at most, made when first needed. Every call raises
    `StoreUnavailableError` when the server cannot be reached or does not answer in time; other
    errors of PostgreSQL come as asyncpg raises them. Databases that share a `writer` learn from each
    other when it moves. `timed` is told how long each statement by name took, the wait for a
    connection included.
    """

    def __init__(
        self,
        dsn: str,
        *,
        application: str = "duly",
        pool_size: int = 8,
        statement_timeout_s: float = 5.0,
        acquire_timeout_s: float = 3.0,
        writer: Writer | None = None,
        timed: Timed | None = None,
    ) -> None:
        self._timed = timed
        self._writer = writer or Writer(dsn)
        self._application = application
        self._statement_timeout_s = statement_timeout_s
        self._acquire_timeout_s = acquire_timeout_s
        self._pool = Pool(
            self._writer,
            pool_size,
            {
                "application_name": application,
                "statement_timeout": str(round(statement_timeout_s * 1000)),
            },
        )
        self._doubts = Doubts(self._writer, application)
        self._running: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Wait for what runs, then close every connection."""
        if self._running:
            await asyncio.wait(self._running, timeout=self._limit_s)
        self._doubts.close()
        self._pool.close()
        if self._running:  # those whose connection was taken from them just now
            await asyncio.wait(self._running, timeout=_ANSWER_MARGIN_S)

    @property
    def size(self) -> int:
        """How many connections there are at most."""
        return self._pool.size

    @property
    def connections(self) -> int:
        """How many there are, in use or not."""
        return self._pool.connections

    @property
    def _limit_s(self) -> float:
        return self._statement_timeout_s + _ANSWER_MARGIN_S

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        """Run the statement called `name` by itself and return its rows."""
        sql = self.sql(name)

        async def call(connection: Any) -> list[Any]:
            rows: list[Any] = await connection.fetch(sql, *args)
            return rows

        return await self.run(call, name)

    @staticmethod
    def sql(name: str) -> str:
        """The text of the statement called `name`."""
        return statements()[name]

    async def run(self, work: Callable[[Any], Awaitable[T]], name: str | None = None) -> T:
        """Run `work(connection)` to its end, whatever becomes of the caller.

        It is one statement or one transaction; it may be called twice, if the first did nothing.
        `name`: of the statement that it is about, by which its time is told.
        """
        return await self._to_the_end(work, name, None)

    async def snapshot(
        self, work: Callable[[Any], Awaitable[T]], name: str, *, by_index: bool = False
    ) -> T:
        """As `run`, for what only reads: all its statements see the same instant.

        `by_index`: no table is read from end to end, whatever statistics that are old, or missing after an
        upgrade, make look cheap. And nothing is planned anew for its parameters: of a large table that is
        dearer than to read a page of it.
        """
        return await self._to_the_end(work, name, _BY_INDEX if by_index else {})

    async def _to_the_end(
        self,
        work: Callable[[Any], Awaitable[T]],
        name: str | None,
        snapshot: dict[str, str] | None,
    ) -> T:
        """`snapshot`: the settings of one; None: it is none."""
        running = self._start(self._run(work, snapshot))
        if self._timed is None or name is None:
            return await asyncio.shield(running)
        began, failed = perf_counter(), False
        try:
            return await asyncio.shield(running)
        except (StoreUnavailableError, asyncpg.PostgresError):
            failed = True
            raise
        finally:
            self._timed(name, perf_counter() - began, failed)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone: then nobody else looks

    async def _run(self, work: Callable[[Any], Awaitable[T]], snapshot: dict[str, str] | None) -> T:
        connection = await self._pool.acquire(self._acquire_timeout_s)
        pid = connection.get_server_pid()

        def served_by(told: int) -> None:
            nonlocal pid
            pid = told

        if self._writer.pooled:
            work = partial(
                in_transaction,
                settings=self._pool.settings | (snapshot or {}),
                work=work,
                served_by=served_by,
                snapshot=snapshot is not None,
            )
        elif snapshot is not None:
            work = partial(_in_snapshot, begin=_begin(snapshot), work=work)
        working = asyncio.ensure_future(_do(connection, work))
        done, _ = await asyncio.wait({working}, timeout=self._limit_s)
        if not done:
            doubt = self._doubts.add(pid)
            self._start(self._linger(connection, working, doubt))
            message = f"PostgreSQL: no answer within {self._limit_s:g} s"
            raise StoreUnavailableError(message, doubt=doubt)
        try:
            answer = working.result()
            if self._pool.is_unsure(connection):
                message = "PostgreSQL: the commit was told not to wait for a standby"
                raise StoreUnavailableError(message, in_doubt=True)
            if _writes_no_more(connection):
                self._writer.suspect()
            return answer
        except (*_LOST, *_REFUSED, asyncpg.InterfaceError) as error:
            if isinstance(error, asyncpg.InterfaceError) and not connection.is_closed():
                raise  # our own mistake, such as a value that does not fit its parameter
            raise self._trouble(error, connection, pid) from error
        except asyncpg.PostgresError as error:
            if error.sqlstate != _ELSEWHERE:
                raise
            elsewhere = StoreUnavailableError(f"PostgreSQL: {error}")
            elsewhere.elsewhere = True
            raise elsewhere from error
        finally:
            self._pool.release(connection)

    def _trouble(self, error: Exception, connection: Any, pid: int) -> StoreUnavailableError:
        """What a caller is told of trouble with the server."""
        text = f"PostgreSQL: {_text(error)}"
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self._writer.suspect()  # the next one may be elsewhere
        if isinstance(error, _REFUSED) and not connection.is_closed():
            return StoreUnavailableError(text)
        if not connection.is_closed():
            connection.terminate()  # there may be a reply to come
        return StoreUnavailableError(text, doubt=self._doubts.add(pid))

    async def _linger(self, connection: Any, working: asyncio.Future[Any], doubt: Doubt) -> None:
        """Keep the place of a connection that owes an answer until its statement has ended."""
        try:
            while not working.done() and doubt.at_work is not False:
                await asyncio.wait({working}, timeout=_LOOK_EVERY_S)
            if working.done():
                self._doubts.answered(doubt)
            else:
                self._writer.suspect()  # others may be as dead
        finally:
            if not connection.is_closed():
                connection.terminate()
            # Its loss ends what waits on it. Cancelling first would send a request to cancel.
            await asyncio.wait({working}, timeout=1.0)
            working.cancel()
            self._pool.release(connection)


async def _do(connection: Any, work: Callable[[Any], Awaitable[T]]) -> T:
    try:
        return await work(connection)
    except _OUTDATED:
        return await work(connection)


def _begin(settings: dict[str, str]) -> str:
    """One message for all of it."""
    begin = [statements()["begin_snapshot"], *(f"set local {n} = {v}" for n, v in settings.items())]
    return "; ".join(begin)


async def _in_snapshot(connection: Any, begin: str, work: Callable[[Any], Awaitable[T]]) -> T:
    await connection.execute(begin)
    try:
        return await work(connection)
    finally:
        await connection.execute(statements()["end_snapshot"])


def _writes_no_more(connection: Any) -> bool:
    """Whether the server has told that it was set to read-only, or became a standby."""
    settings = connection.get_settings()
    return "on" in (
        getattr(settings, "default_transaction_read_only", "off"),
        getattr(settings, "in_hot_standby", "off"),
    )


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
