"""What the store knows of why a task has not run."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from duly.storage.database import Database

_PER_SLOT = 100  # due tasks looked at: about 25,000 index entries at most


class Standing(NamedTuple):
    """A task, and who owns its slot by what PostgreSQL knows."""

    status: str
    queue: str
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    next_run_at: datetime | None
    slot: int
    owner: str | None
    version: int
    retry_count: int
    max_retries: int
    begun: bool
    priority: int
    claimed_at: datetime | None
    started_at: datetime | None
    worker: str | None
    finished_at: datetime | None
    slot_owner: str | None
    free_since: datetime | None
    queue_paused: bool | None
    queue_paused_by: str | None
    queue_paused_at: datetime | None
    rate: float | None
    """Of its queue, tasks a second."""
    burst: int | None
    max_in_flight: int | None
    concurrency_key: str | None
    concurrency_limit: int | None
    waits_for: list[UUID] | None = None
    given_back: str | None = None
    """Why the worker that had it last has not begun it, if it said so; the first 1,000 characters."""


class Ahead(NamedTuple):
    """How many due tasks go before one; if not `whole`, there may be more."""

    tasks: int
    whole: bool


async def standing(db: Database, task_id: UUID) -> Standing | None:
    """A task, finished or not; None if there is none by that id."""
    rows = await db.fetch("explain", task_id)
    return Standing(*rows[0]) if rows else None


async def ahead(db: Database, queue: str, priority: int, due: datetime, now: datetime) -> Ahead:
    """The due tasks of a queue that go before one of this priority and due time."""
    row = (await db.fetch("ahead", queue, priority, due, now, _PER_SLOT))[0]
    return Ahead(row["ahead"], row["whole"])
