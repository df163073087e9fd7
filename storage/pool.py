"""Connections that are kept for the next statement.

Not asyncpg's pool: this one lets go of every connection to a server that is no longer the writer,
and of none while its statement is under way.
"""

import asyncio
import time
from collections import deque
from typing import Any

import asyncpg

from duly.storage.errors import StoreUnavailableError
from duly.storage.writer import Writer

_IDLE_S = 60.0
"""One that was idle longer is replaced: a firewall may have forgotten it."""

# What the server shall do when it is the client that is gone; it must not hold locks for hours.
_SESSION = {
    "idle_in_transaction_session_timeout": "10000",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",  # claims count what others have committed
    "timezone": "UTC",
    "jit": "off",  # the statements are short
}


class Pool:
    """At most `size` connections to the writer, made when first needed.

    `settings`: of their sessions, beside those that every connection of Duly has.
    """

    def __init__(self, writer: Writer, size: int, settings: dict[str, str]) -> None:
        self._writer = writer
        self.settings = _SESSION | settings
        """Of every session."""
        self.size = size
        self._room = asyncio.Semaphore(size)
        self._idle: deque[tuple[Any, float]] = deque()
        self._generations: dict[Any, int] = {}
        self._unsure: set[Any] = set()
        writer.on_suspicion(self.drop_idle)

    @property
    def connections(self) -> int:
        """How many there are, in use or not."""
        return len(self._generations)

    async def acquire(self, timeout_s: float) -> Any:
        """A connection of one's own until `release`. Raises `StoreUnavailableError`."""
        deadline = time.monotonic() + timeout_s
        if not self._room.locked():
            await self._room.acquire()  # at once: no need of a timer
        else:
            await self._wait_for_room(timeout_s)
        try:
            return self._kept() or await self._connect(deadline - time.monotonic())
        except BaseException:
            self._room.release()
            raise

    async def _wait_for_room(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._room.acquire()
        except TimeoutError:
            message = f"no free connection to PostgreSQL within {timeout_s:g} s"
            raise StoreUnavailableError(message) from None

    def release(self, connection: Any) -> None:
        """Take a connection back; it is kept if it is sound and still one to the writer."""
        self._unsure.discard(connection)
        try:
            if self._is_sound(connection):
                self._idle.append((connection, time.monotonic()))
            else:
                self._forget(connection)
        finally:
            self._room.release()

    def is_unsure(self, connection: Any) -> bool:
        """Whether a commit since `acquire` did not wait for the standby that it should have waited for."""
        return connection in self._unsure

    def drop_idle(self) -> None:
        """Close what is not in use."""
        while self._idle:
            self._forget(self._idle.pop()[0])

    def close(self) -> None:
        """Close every connection, in use or not."""
        self._idle.clear()
        for connection in list(self._generations):
            self._forget(connection)

    def _kept(self) -> Any:
        """The one idle longest: so all stay in use, and a burst after quiet hours has to open none. None if there is none."""
        while self._idle:
            connection, since = self._idle.popleft()
            if time.monotonic() - since <= _IDLE_S and not connection.is_closed():
                return connection
            self._forget(connection)
        return None

    async def _connect(self, timeout_s: float) -> Any:
        generation = self._writer.generation
        connection = await self._writer.connect(max(0.1, timeout_s), self.settings)
        self._generations[connection] = generation
        connection.add_log_listener(self._heard)
        return connection

    def _is_sound(self, connection: Any) -> bool:
        return (
            not connection.is_closed()
            and not connection.is_in_transaction()
            and self._generations[connection] == self._writer.generation
        )

    def _forget(self, connection: Any) -> None:
        self._generations.pop(connection, None)
        self._unsure.discard(connection)
        if not connection.is_closed():
            connection.terminate()

    def _heard(self, connection: Any, message: asyncpg.PostgresLogMessage) -> None:
        # "canceling wait for synchronous replication": the commit then succeeds, but only here.
        if message.sqlstate == "01000" and connection in self._generations:
            self._unsure.add(connection)
