"""Jobs that act on all tasks that a filter finds, as they are kept in the store."""

from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from duly.storage import audit
from duly.storage.audit import Note
from duly.storage.database import Database

Action = Literal["cancel", "retry", "pause", "resume", "reschedule"]
End = Literal["stopped", "done", "failed"]


class Job(NamedTuple):
    """A job. `filter` is JSON text: the parameters of a list by name."""

    id: UUID
    action: Action
    filter: str
    due: datetime | None
    """What a reschedule makes of `next_run_at`."""
    rate: float
    """Tasks a second at most."""
    status: str
    total: int
    exact: bool
    """Whether `total` was counted, not estimated."""
    done: int
    refused: int
    """Those whose state did not allow it when their turn came."""
    place: UUID | None
    """The id after which it goes on."""
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: str | None
    epoch: int
    """Grows with each node that takes the job; what an earlier one records is not taken."""


class NewJob(NamedTuple):
    """A job to be added."""

    id: UUID
    action: Action
    filter: str
    due: datetime | None
    rate: float
    total: int
    exact: bool
    created_by: str | None


async def add(
    db: Database, job: NewJob, forget_before: datetime, now: datetime, note: Note | None
) -> Job:
    """Add a job, with its audit note; forget old ones."""
    rows = await audit.change(db, note, "bulk_add", None, now, *job, forget_before, now)
    return Job(*rows[0])


async def get(db: Database, job_id: UUID) -> Job | None:
    """One job."""
    rows = await db.fetch("bulk_get", job_id)
    return Job(*rows[0]) if rows else None


async def jobs(db: Database, after: tuple[datetime, UUID] | None, limit: int) -> list[Job]:
    """Newest first, after (older than) the one at (`created_at`, `id`)."""
    return [Job(*row) for row in await db.fetch("bulk_list", *(after or (None, None)), limit)]


async def stop(db: Database, job_id: UUID, now: datetime, note: Note | None) -> Job | None:
    """Ask for a running job to be stopped; None if there is none by that id."""
    rows = await audit.change(db, note, "bulk_stop", None, now, job_id, now)
    return Job(*rows[0]) if rows else None


async def take(db: Database, owner: str, dead_since: datetime, now: datetime) -> Job | None:
    """Take an open job over: ours, nobody's, or one whose owner has recorded nothing since."""
    rows = await db.fetch("bulk_take", owner, dead_since, now)
    return Job(*rows[0]) if rows else None


async def record(
    db: Database,
    job: Job,
    now: datetime,
    *,
    done: int = 0,
    refused: int = 0,
    end: End | None = None,
    error: str | None = None,
    release: bool = False,
) -> str | None:
    """Add to the counts, and keep `job.place`; answers its status, None if it is not ours any more.

    `end`: it is over. `release`: another node may take it at once.
    """
    args = (job.id, job.epoch, job.place, done, refused, now, end, error, release)
    rows = await db.fetch("bulk_record", *args)
    return str(rows[0]["status"]) if rows else None
