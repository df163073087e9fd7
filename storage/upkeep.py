"""The server's clock, day partitions, and what is dropped when its time is over."""

from datetime import date, datetime, timedelta
from typing import NamedTuple

from duly.storage.database import Database

DAYS_AHEAD = 7
"""Partitions are made this many days ahead, so that a node may be away for a week."""

_BY_DAY = (("finished_tasks", "finished_at"), ("runs", "recorded_at"))


class ServerTime(NamedTuple):
    """PostgreSQL's clock and timeline (which grows with each promotion); `read_only` on a standby."""

    now: datetime
    timeline: int
    read_only: bool

    @property
    def token_base(self) -> int:
        """Tokens start above this: a promotion that lost commits never hands one out twice."""
        return (self.timeline - 1) << 40


async def server_time(db: Database) -> ServerTime:
    """Read PostgreSQL's clock."""
    row = (await db.fetch("server_time"))[0]
    return ServerTime(row["now"], row["timeline"], row["read_only"])


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


async def expire_keys(db: Database, now: datetime) -> None:
    """Forget idempotency keys whose time is over, some thousands at most."""
    await db.fetch("expire_keys", now)
