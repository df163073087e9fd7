"""The session in which PostgreSQL tells a node what others have committed that concerns it.

Only transactions of users tell by it (see the migration `submit`): nodes tell each other through Redis.
"""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import asyncpg

from duly.storage.errors import StoreUnavailableError
from duly.storage.queries import statements
from duly.storage.writer import Writer

_TIMEOUT_S = 5.0

_TROUBLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class Limits(NamedTuple):
    """Those of this node's settings that the SQL function `duly.submit` goes by."""

    payload_bytes: int
    idempotency_ttl_s: float
    region: str | None


class Session:
    """Hears as long as it is open; what is told while it is not, is lost."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def check(self) -> None:
        """Raise `StoreUnavailableError` if it cannot hear any more."""
        try:
            async with self._connection.transaction():
                writes = await self._connection.fetchval(
                    statements()["still_writes"], timeout=_TIMEOUT_S
                )
        except _TROUBLE as error:
            raise _unavailable(error) from error
        if not writes:
            raise StoreUnavailableError("PostgreSQL: a standby by now")


@asynccontextmanager
async def opened(
    writer: Writer, node: str, limits: Limits, hear: Callable[[str], None]
) -> AsyncIterator[Session]:
    """A session of `node` for the length of the block, which first makes its limits known.

    `hear` is called with each message; behind a pooler there is none. Raises `StoreUnavailableError` where there is no session to be had.
    """
    settings = {"application_name": f"duly notices {node[-50:]}"}
    connection = await writer.connect(_TIMEOUT_S, settings)
    try:
        try:
            async with connection.transaction():
                await connection.execute(statements()["say_limits"], *limits, timeout=_TIMEOUT_S)
            if not writer.pooled:
                await connection.add_listener(channel(node), lambda *told: hear(told[-1]))
        except _TROUBLE as error:
            raise _unavailable(error) from error
        yield Session(connection)
    finally:
        connection.terminate()


def channel(node: str) -> str:
    """As `duly_channel` names it."""
    return "duly_" + hashlib.md5(node.encode(), usedforsecurity=False).hexdigest()


def _unavailable(error: BaseException) -> StoreUnavailableError:
    return StoreUnavailableError(f"PostgreSQL: {error or type(error).__name__}")
