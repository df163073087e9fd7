"""The server's clock, day partitions, and what is dropped when its time is over."""

from datetime import date, datetime, timedelta
from typing import NamedTuple

from duly.storage.database import Database

DAYS_AHEAD = 7
"""Partitions are made this many days ahead, so that a node may be away for a week."""

BY_DAY = {
    "finished_tasks": "finished_at",
    "runs": "recorded_at",
    "audit": "at",
    "rejected_reports": "day",
}
"""The tables that are kept by day, each with the column that tells the day."""

ARCHIVED = ("finished_tasks", "runs")
"""Those of them that `duly archive export` writes to files."""

_MOVED_AT_MOST = 50_000
"""As many rows move from the default partition while those who write to the table wait: about a second."""


class OldDay(NamedTuple):
    """A day of a table whose time is over."""

    parent: str
    clock_column: str
    day: date
    stray: bool
    """It has no partition; its rows are in the default one."""
    exported: bool


class Dropped(NamedTuple):
    """What became of the days whose time was over."""

    dropped: int
    locked: int
    """Still there because of a lock."""
    unexported: list[OldDay]
    """Still there because they have to be exported first; the oldest ones first."""


async def server_time(db: Database) -> datetime:
    """Read PostgreSQL's clock."""
    now: datetime = (await db.fetch("server_time"))[0]["now"]
    return now


async def try_write(db: Database) -> None:
    """Raises `StoreUnavailableError` unless PostgreSQL takes a write and commits it, standby included."""
    await db.fetch("try_write")


async def make_partitions(db: Database, today: date, *, oldest: date | None = None) -> bool:
    """Make the partitions from yesterday, or `oldest` if that is later, to `DAYS_AHEAD` days from now.

    False if some could not be made now: somebody reads or writes the table for long, or many rows are in the
    default partition already. Rows of such a day go to the default partition, where all find them.
    """
    first, last = today - timedelta(days=1), today + timedelta(days=DAYS_AHEAD)
    missing = await db.fetch("missing_days", list(BY_DAY), max(first, oldest or first), last)
    complete = True
    for parent, day in missing:
        rows = await db.fetch("make_day", parent, BY_DAY[parent], day, _MOVED_AT_MOST)
        complete = complete and rows[0]["made"]
    return complete


async def drop_old_days(db: Database, cutoff: datetime, *, exported: bool = False) -> Dropped:
    """Drop the days that ended before `cutoff`; with `exported` those of `ARCHIVED` only if they are.

    What somebody reads stays, and so do the days of a table that was in use for so long that others would have had
    to wait.
    """
    found = Dropped(0, 0, [])
    for row in await db.fetch("old_days", list(BY_DAY), list(BY_DAY.values()), cutoff):
        old = OldDay(*row)
        what = await _drop(db, old, exported and old.parent in ARCHIVED)
        if what == "unexported":
            found.unexported.append(old)
        else:
            found = found._replace(**{what: getattr(found, what) + 1})
    return found


async def _drop(db: Database, old: OldDay, exported: bool) -> str:
    if exported and not old.exported:
        return "unexported"
    if not old.stray:
        return str((await db.fetch("drop_day", old.parent, old.day, exported))[0]["what"])
    args = (old.parent, old.clock_column, old.day, exported)
    while (deleted := (await db.fetch("drop_strays", *args))[0]["deleted"]) > 0:
        pass
    return "dropped" if deleted == 0 else "unexported"


async def expire_keys(db: Database, now: datetime) -> bool:
    """Forget some thousands of the idempotency keys whose time is over; False if there were none."""
    return bool(await db.fetch("expire_keys", now))
