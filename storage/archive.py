"""Reads whole days of finished tasks and of runs, and notes which have been exported.

A day is read in one read-only transaction: its rows are those of one instant. From before that, whatever adds rows to
the day changes its state, so an export counts only if no row is missing in it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

import asyncpg

from duly.storage.errors import MigrationError, StoreUnavailableError
from duly.storage.migrate import migrations
from duly.storage.queries import statements
from duly.storage.upkeep import BY_DAY
from duly.storage.writer import Writer

Kind = Literal["tasks", "runs"]

PARENTS: dict[Kind, str] = {"tasks": "finished_tasks", "runs": "runs"}

_CONNECT_TIMEOUT_S = 10.0
_ANSWER_S = 90.0
_SESSION = {
    "application_name": "duly archive",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "statement_timeout": "60000",
    "lock_timeout": "5000",
    # Whoever does not go on with a day must not keep the store from being vacuumed.
    "idle_in_transaction_session_timeout": "60000",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "jit": "off",
}
_TROUBLE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

_ROWS_AT_MOST = 250
_BYTES_WANTED = 1 << 20


class Source(NamedTuple):
    """The store that is exported."""

    id: UUID
    now: datetime
    """By its clock, which is the cluster's."""


class Day(NamedTuple):
    """All rows of one day (UTC) of one kind."""

    kind: Kind
    day: date

    @property
    def parent(self) -> str:
        """Its table."""
        return PARENTS[self.kind]

    @property
    def clock_column(self) -> str:
        """The column that tells the day."""
        return BY_DAY[self.parent]


class Watched(NamedTuple):
    """A day whose changes are noted."""

    place: str
    """The table that its rows are in."""
    life: UUID
    """Another one if the day was dropped, and then rows of it came after all."""
    state: UUID
    """Another one whenever rows were added."""


class GoneError(Exception):
    """The day has been dropped meanwhile."""


class Archive:
    """One connection to a store. Methods raise `StoreUnavailableError` when it does not work."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def source(self) -> Source:
        """Which store it is. Raises `MigrationError` unless its schema is of this version."""
        ours = migrations()[-1].version
        rows = await self._fetch("schema_version")
        if rows[0]["version"] != ours:
            message = f"the schema is of version {rows[0]['version']}, this is for version {ours}"
            raise MigrationError(f"{message}: duly migrate, or upgrade duly")
        return Source(*(await self._fetch("archive_source"))[0])

    async def days(self, kind: Kind, before: date) -> list[Day]:
        """The days before `before` that are there, the oldest first."""
        end = datetime.combine(before, time(), UTC)
        parent = PARENTS[kind]
        rows = await self._fetch("archive_days", parent, BY_DAY[parent], end)
        return [Day(kind, row["day"]) for row in rows]

    async def watch(self, day: Day) -> Watched | None:
        """From now on rows that are added to the day change its state. None: somebody is just adding some.

        Raises `GoneError` if there is no such day (any more).
        """
        rows = await self._fetch("watch_day", day.parent, day.clock_column, day.day)
        what, place, life, state = rows[0]
        if what == "gone":
            raise GoneError
        return Watched(place, life, state) if what == "watched" else None

    @asynccontextmanager
    async def reading(self, day: Day, watched: Watched) -> AsyncIterator[AsyncIterator[list[str]]]:
        """The rows of a day as of one instant, each a JSON object in one line, without its end.

        A megabyte at a time, or a few hundred rows. Raises `GoneError` if the day has been dropped.
        """
        transaction = self._connection.transaction(isolation="repeatable_read", readonly=True)
        try:
            await transaction.start()
        except _TROUBLE as error:
            raise _unavailable(error) from error
        try:
            args = (watched.place, day.clock_column, day.day)
            statement = (await self._fetch("day_statement", *args))[0]["statement"]
            try:
                cursor = await self._connection.cursor(statement, timeout=_ANSWER_S)
            except asyncpg.UndefinedTableError:
                raise GoneError from None
            except _TROUBLE as error:
                raise _unavailable(error) from error
            yield _lines(cursor)
        finally:
            if not self._connection.is_closed():
                with suppress(*_TROUBLE):  # whatever comes next finds out; nothing was changed
                    await transaction.rollback()

    async def unchanged(self, day: Day, state: UUID) -> bool:
        """Whether the day is still there, and no rows were added since it had this state."""
        return bool(await self._fetch("day_unchanged", day.parent, day.day, state))

    async def exported(self, day: Day, state: UUID, rows: int, sha256: str, now: datetime) -> bool:
        """Note that all rows of the day are in a file, unless it has another state by now."""
        args = (day.parent, day.day, state, now, rows, sha256)
        return bool(await self._fetch("day_exported", *args))

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        try:
            rows: list[Any] = await self._connection.fetch(
                statements()[name], *args, timeout=_ANSWER_S
            )
        except _TROUBLE as error:
            raise _unavailable(error) from error
        return rows


async def _lines(cursor: Any) -> AsyncIterator[list[str]]:
    count = 1
    while True:
        try:
            lines = [row[0] for row in await cursor.fetch(count, timeout=_ANSWER_S)]
        except _TROUBLE as error:
            raise _unavailable(error) from error
        if not lines:
            return
        yield lines
        average = max(1, sum(map(len, lines)) // len(lines))
        count = min(_ROWS_AT_MOST, 2 * count, max(1, _BYTES_WANTED // average))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Archive]:
    """A connection to the store of this database URL."""
    connection = await Writer(url).connect_session(_CONNECT_TIMEOUT_S, _SESSION)
    try:
        yield Archive(connection)
    finally:
        await connection.close(timeout=5)


def first_after(now: datetime, older_than: timedelta) -> date:
    """The first day (UTC) that had not ended `older_than` ago: all before it had."""
    return (now - older_than).astimezone(UTC).date()


def _unavailable(error: BaseException) -> StoreUnavailableError:
    return StoreUnavailableError(f"PostgreSQL: {error or type(error).__name__}")
