"""The server's clock, day partitions, and what is dropped when its time is over."""

from datetime import date, datetime, timedelta

from duly.storage.database import Database

DAYS_AHEAD = 7
"""Partitions are made this many days ahead, so that a node may be away for a week."""

_BY_DAY = (
    ("finished_tasks", "finished_at"),
    ("runs", "recorded_at"),
    ("audit", "at"),
    ("rejected_reports", "day"),
)


async def server_time(db: Database) -> datetime:
    """Read PostgreSQL's clock."""
    now: datetime = (await db.fetch("server_time"))[0]["now"]
    return now


async def try_write(db: Database) -> None:
    """Raises `StoreUnavailableError` unless PostgreSQL takes a write and commits it, standby included."""
    await db.fetch("try_write")


async def make_partitions(db: Database, today: date) -> None:
    """Make the day partitions from yesterday to `DAYS_AHEAD` days from now."""
    first, last = today - timedelta(days=1), today + timedelta(days=DAYS_AHEAD)
    for table, clock_column in _BY_DAY:
        await db.fetch("make_partitions", table, clock_column, first, last)


async def drop_partitions(db: Database, cutoff: datetime) -> int:
    """Drop the days that ended before `cutoff`; answers how many."""
    dropped = 0
    for table, clock_column in _BY_DAY:
        rows = await db.fetch("drop_partitions", table, clock_column, cutoff)
        dropped += rows[0]["dropped"]
    return dropped


async def expire_keys(db: Database, now: datetime) -> bool:
    """Forget some thousands of the idempotency keys whose time is over; False if there were none."""
    return bool(await db.fetch("expire_keys", now))
