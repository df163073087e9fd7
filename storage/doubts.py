"""Finds out how statements ended whose answer never came.

A session that was cut off from us may still be at work, or may not even have begun: nothing read back
is certain until it is gone. So it is ended from another connection. The exception is a commit that
waits for a standby: ending that wait would make it a commit that the standby does not have.
"""

import asyncio
from typing import Any

import asyncpg

from duly.storage.errors import Doubt, StoreUnavailableError
from duly.storage.queries import statements
from duly.storage.writer import Writer

_TIMEOUT_S = 3.0
_FIRST_S = 0.05
_LONGEST_S = 1.0


class Doubts:
    """The open questions of the sessions named `application`."""

    def __init__(self, writer: Writer, application: str) -> None:
        self._writer = writer
        self._application = application
        self._open: dict[int, Doubt] = {}
        self._asking: asyncio.Task[None] | None = None

    def add(self, pid: int) -> Doubt:
        """The session `pid` was at work when we last heard of it."""
        doubt = self._open.setdefault(pid, Doubt(pid))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return doubt

    def answered(self, doubt: Doubt) -> None:
        """Its statement has ended after all."""
        if self._open.get(doubt.pid) is doubt:
            del self._open[doubt.pid]
        doubt.over.set()

    def close(self) -> None:
        """Ask no more; what is still open stays so."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        wait_s = _FIRST_S
        while asked := list(self._open.values()):
            try:
                at_work = await self._look([doubt.pid for doubt in asked])
            except StoreUnavailableError:
                for doubt in asked:
                    doubt.at_work = False  # for all that can be seen
            else:
                for doubt in asked:
                    doubt.at_work = doubt.pid in at_work
                    if not doubt.at_work:
                        self.answered(doubt)
            await asyncio.sleep(wait_s)
            wait_s = min(_LONGEST_S, wait_s * 2)

    async def _look(self, pids: list[int]) -> set[int]:
        """End these sessions but those that wait for a standby; answers who is still there."""
        settings = {
            "application_name": f"{self._application} doubts"[:63],
            "statement_timeout": str(round(_TIMEOUT_S * 1000)),
        }
        connection = await self._writer.connect(_TIMEOUT_S, settings)
        looking = asyncio.ensure_future(self._settle(connection, pids))
        try:
            await asyncio.wait({looking}, timeout=_TIMEOUT_S)
            if not looking.done():
                raise StoreUnavailableError("PostgreSQL: no answer in time")
            return {row["pid"] for row in looking.result()}
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise StoreUnavailableError(f"PostgreSQL: {error}") from error
        finally:
            connection.terminate()
            looking.cancel()

    async def _settle(self, connection: Any, pids: list[int]) -> list[Any]:
        async with connection.transaction():
            rows: list[Any] = await connection.fetch(
                statements()["settle_sessions"], pids, self._application
            )
            return rows
