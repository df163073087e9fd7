"""A session in one of the two stores between which slots move. It has a deadline for whatever it waits for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, TypeVar

import asyncpg

from duly.storage import stores
from duly.storage.database import Database
from duly.storage.errors import StoreError, StoreUnavailableError

T = TypeVar("T")

_ANSWER_S = 60.0
LONG_S = 900.0
"""To look through a whole table, or to copy all runs of a task."""
# Longer than PostgreSQL waits (deadlock_timeout, 1 s) before it ends a vacuum that is in the way.
_LOCK_S = 2.0
_LOCK_TRIES = 10
_BEGIN_S = 20.0  # until a session that was cut off is gone
_CLOSE_S = 2.0
_UNDO_S = 0.5
_LOST = (
    OSError,  # TimeoutError is one
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
)


class MoveError(StoreError):
    """The slots cannot be moved, or not now."""


class LockedError(MoveError):
    """Somebody else has a table locked for too long. What was asked for has surely not been done."""


class MoveSession:
    """Statements by their names. Methods raise `StoreUnavailableError` once the connection is lost or does not answer."""

    def __init__(self, url: str, number: int) -> None:
        self.name = stores.name(url, number)
        self.number = number
        self._url = url
        self.connection: Any = None

    async def __aenter__(self) -> Self:
        try:
            self.connection = await stores.connect(self._url, session=True)
        except StoreUnavailableError as error:
            raise type(error)(f"{self.name}: {error}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.connection.close(timeout=_CLOSE_S)
        except _LOST:
            self.connection.terminate()

    async def begin(self, *, target: bool) -> None:
        """Be the one that moves slots here. Raises `MoveError` if somebody else does, or this is another store."""
        await self.value("move_session", "on" if target else "off")
        if (number := await self.value("move_number")) != self.number:
            is_ = "no store of this cluster" if number is None else f"store {number}"
            raise MoveError(f"{self.name} is {is_}: name the stores in their order")
        clock = asyncio.get_running_loop().time
        until = clock() + _BEGIN_S
        while not await self.value("move_begin", stores.MOVE_LOCK):
            if clock() > until:
                raise MoveError(f"{self.name}: another move is under way")
            await asyncio.sleep(0.2)

    async def write_all(self) -> None:
        """From now on triggers leave alone what this session does."""
        await self.value("move_session", "on")

    async def fetch(self, name: str, *args: Any, within_s: float = _ANSWER_S) -> list[Any]:
        """The rows that a statement answers."""
        sql = Database.sql(name)
        return list(await self.answer(self.connection.fetch(sql, *args), within_s))

    async def value(self, name: str, *args: Any, within_s: float = _ANSWER_S) -> Any:
        """The first value of the first row."""
        sql = Database.sql(name)
        return await self.answer(self.connection.fetchval(sql, *args), within_s)

    async def long(self, name: str, *args: Any) -> list[Any]:
        """As `fetch`, of what may have to look through a whole table."""
        return await self.fetch(name, *args, within_s=LONG_S)

    async def locking(
        self, name: str, *args: Any, tries: int = _LOCK_TRIES, within_s: float = _LOCK_S
    ) -> None:
        """Run what locks a table against writers, who wait for it meanwhile: some seconds at most, then anew.

        Raises `LockedError`.
        """
        for left in reversed(range(tries)):
            try:
                async with self.transaction():
                    # Not 0, which would be no limit.
                    await self.value("move_lock_limit", f"{max(1, round(within_s * 1000))}ms")
                    await self.value(name, *args, within_s=within_s + _LOCK_S)
                return
            except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
                if not left:
                    message = f"{self.name}: a table is locked for too long: try again later"
                    raise LockedError(message) from None
                await asyncio.sleep(_LOCK_S)

    @asynccontextmanager
    async def transaction(self, **kind: Any) -> AsyncIterator[None]:
        """What is done in it, is done altogether."""
        transaction = await self.answer(self._begun(kind))
        try:
            yield
        except BaseException:
            if not self.connection.is_closed():
                with suppress(StoreUnavailableError):  # what is on its way tells why
                    await self.answer(transaction.rollback(), _UNDO_S)
            raise
        await self.answer(self._committed(transaction))

    async def _committed(self, transaction: Any) -> None:
        # On a connection that is closed it raises at the call, not at the wait.
        await transaction.commit()

    async def _begun(self, kind: dict[str, Any]) -> Any:
        transaction = self.connection.transaction(**kind)
        await transaction.start()
        return transaction

    def terminate(self) -> None:
        """Drop the connection: what it was asked is done or not, and nothing after it."""
        self.connection.terminate()

    async def answer(self, answer: Awaitable[T], within_s: float = _ANSWER_S) -> T:
        """Wait for what was asked of `connection`."""
        try:
            async with asyncio.timeout(within_s):
                return await answer
        except _LOST as error:
            self.terminate()  # there may be a reply to come
            said = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise StoreUnavailableError(f"{self.name}: {said}") from error
