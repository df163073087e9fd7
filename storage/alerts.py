"""Alerts over watched schedules: raised and cleared from the store, by whichever node looks first."""

from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID

from duly.storage.database import Database

TELL_WITHIN = timedelta(days=1)
"""What the webhook could not be told for so long, it is not told any more."""

_AGAIN = timedelta(seconds=30)  # after the first try; a minute more after each


class Alert(NamedTuple):
    """Something that an operator should know. `details` is JSON text."""

    id: int
    kind: Literal["silent", "auto_paused"]
    task_id: UUID
    type: str
    queue: str
    since: datetime
    """Since when it has lasted: for `silent`, the last completed occurrence (or the task's begin)."""
    raised_at: datetime
    cleared_at: datetime | None
    details: str


class Outlook(NamedTuple):
    """What there is to do: a schedule is silent for too long, an alert is open, one is news."""

    silent: bool
    open: bool
    news: bool


class Filter(NamedTuple):
    """Which alerts are asked for; None = any."""

    open: bool | None = None
    task_id: UUID | None = None


async def outlook(db: Database, now: datetime) -> Outlook:
    """Whether anything of an alert is to be done at all."""
    return Outlook(*(await db.fetch("alert_outlook", now))[0])


async def raise_silent(db: Database, now: datetime, limit: int) -> int:
    """Raise an alert for up to `limit` schedules that have been silent for too long; how many."""
    return len(await db.fetch("raise_silent", now, limit))


async def clear(db: Database, now: datetime) -> int:
    """Clear the alerts whose reason is over; how many."""
    return len(await db.fetch("clear_alerts", now))


async def news(db: Database, limit: int) -> list[Alert]:
    """Alerts that were raised or cleared, each of them to one caller once."""
    return [Alert(*row) for row in await db.fetch("alert_news", limit)]


async def to_tell(db: Database, now: datetime, limit: int) -> list[Alert]:
    """Alerts that the webhook does not know yet. Unless `told` is called, they come again later."""
    rows = await db.fetch("alerts_to_tell", now, now + _AGAIN, now - TELL_WITHIN, limit)
    return [Alert(*row) for row in rows]


async def told(db: Database, alert: Alert) -> None:
    """The webhook knows of this alert as it was when it was read."""
    await db.fetch("alert_told", alert.id, alert.cleared_at)


async def listing(db: Database, where: Filter, before: int | None, limit: int) -> list[Alert]:
    """Alerts, newest first, after (older than) the one with the id `before`."""
    return [Alert(*row) for row in await db.fetch("alerts", *where, before, limit)]


async def open_by_kind(db: Database) -> dict[str, int]:
    """How many alerts are open."""
    return {row["kind"]: row["count"] for row in await db.fetch("open_alerts")}


async def forget(db: Database, before: datetime) -> bool:
    """Forget some thousands of the alerts that were cleared before; False if there were none."""
    return bool(await db.fetch("forget_alerts", before))
