"""What clients do to tasks: get, cancel, patch, retry, runs. (Lists are in `listing`.)

Each is one statement; the answer to a change is decided by the row's version or status in it. If the
answer to one is lost, it is looked up, and what was not done is done again (`certainty`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from duly.storage import audit, certainty
from duly.storage.audit import Note
from duly.storage.courses import Place
from duly.storage.database import Database
from duly.storage.errors import NameInUseError
from duly.storage.slots import DueRow


class TaskRow(NamedTuple):
    """A task as stored, finished or not. JSON fields are text."""

    id: UUID
    type: str
    queue: str
    payload: str
    status: str
    paused: bool
    next_run_at: datetime | None
    occurrence: datetime
    slot: int
    owner: str | None
    version: int
    retry_count: int
    max_retries: int
    backoff: str | None
    timeout: float
    schedule: str | None
    overrun: str
    misfire_grace: float | None
    on_lost: str
    priority: int
    idempotency_key: str | None
    tags: str
    concurrency_key: str | None
    concurrency_limit: int | None
    fairness_key: str | None
    region: str | None
    name: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    result: str | None
    error: str | None
    on_success: str | None = None
    on_failure: str | None = None
    parent: str | None = None
    after: list[UUID] | None = None
    waits_for: list[UUID] | None = None
    """What of `after` has not completed yet; while there is any, `next_run_at` is far off and means nothing."""


class RunRow(NamedTuple):
    """One ended attempt. JSON fields are text."""

    task_id: UUID
    token: int
    occurrence: datetime
    attempt: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    recorded_at: datetime
    error: str | None
    result: str | None
    follow_up: UUID | None = None


class Change(NamedTuple):
    """What a patch sets; None = leave. What has a `set_…` is set if that is true, to None too.

    `schedule` is JSON text, and `interval` the period of it. `may_run`: it concerns only later
    occurrences, so that a periodic task may run meanwhile.
    """

    due: datetime | None = None
    payload: str | None = None
    priority: int | None = None
    max_retries: int | None = None
    backoff: str | None = None
    timeout: float | None = None
    tags: str | None = None
    set_misfire_grace: bool = False
    misfire_grace: float | None = None
    schedule: str | None = None
    interval: timedelta | None = None
    overrun: str | None = None
    may_run: bool = False
    set_concurrency_key: bool = False
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    set_fairness_key: bool = False
    fairness_key: str | None = None
    wait_no_more: bool = False
    """Of a task that waits for others: it does not any longer."""


_FIRST = 13  # of a change, what the statement takes before the decision; the rest comes after it


class Decided(NamedTuple):
    """Where a schedule leads, and as what the task was seen when that was decided.

    `place` None: it stays where it is. `recount` is added to the runs that `max_runs` counts.
    """

    version: int
    status: str
    schedule: str | None
    done_until: datetime | None
    place: Place | None
    recount: int = 0


class Waiting(NamedTuple):
    """A task that waits (again), and who should hear of it."""

    due: DueRow
    slot_owner: str | None


class Changed(NamedTuple):
    """A task after a change, or as it is if `changed` is false; `slot_owner` is to hear of it."""

    row: TaskRow
    changed: bool
    slot_owner: str | None

    @property
    def waiting(self) -> Waiting:
        """For the slot's owner; only of a task that is pending."""
        row = self.row
        assert row.next_run_at is not None
        due = DueRow(
            row.id, row.slot, row.next_run_at, row.version, row.priority, row.queue,
            row.concurrency_key, row.fairness_key,
        )  # fmt: skip
        return Waiting(due, self.slot_owner)


class Only(NamedTuple):
    """What an unfinished task has to be, as in `listing.Filter`; null: any.

    Of a filter, that which may change while its task is unfinished.
    """

    status: str | None = None
    tag: str | None = None
    due_before: datetime | None = None
    due_after: datetime | None = None
    paused: bool | None = None


class Cancelled(NamedTuple):
    """A cancelled task, and the token before it (0: never claimed, never changed)."""

    row: TaskRow
    token: int


async def get(db: Database, ids: Sequence[UUID]) -> dict[UUID, TaskRow]:
    """These tasks by id, finished or not."""
    return {row["id"]: TaskRow(*row) for row in await db.fetch("get", list(ids))}


async def named(db: Database, names: Sequence[str]) -> dict[str, TaskRow]:
    """The unfinished tasks that have these names, by name."""
    rows = [TaskRow(*row) for row in await db.fetch("named", list(names))]
    return {row.name: row for row in rows if row.name is not None}


async def queues(db: Database, ids: Sequence[UUID]) -> dict[UUID, str]:
    """The queue of each of these tasks, finished or not."""
    return {row["id"]: row["queue"] for row in await db.fetch("queues", list(ids))}


async def cancel(
    db: Database,
    task_id: UUID,
    now: datetime,
    note: Note | None = None,
    decided: Decided | None = None,
    only: Only | None = None,
) -> Cancelled | None:
    """Cancel a pending or running task (`only`: while it is so); None if there is none by that id.

    A periodic one only with `decided`, which says what is skipped with it, and if it still is as it was
    then; see `duly.actors.cancelling`.
    """
    seen = (None,) * 4 if decided is None else decided[:4]
    skipped = () if decided is None or decided.place is None else decided.place.skipped
    columns = (*seen, [one[0] for one in skipped], [one[1] for one in skipped])
    wanted = only or Only()

    async def attempt() -> Cancelled | None:
        rows = await audit.change(db, note, "cancel", task_id, now, task_id, now, *columns, *wanted)
        if not rows:
            return None
        *row, token = rows[0]
        return Cancelled(TaskRow(*row), token)

    async def again() -> Cancelled | None:
        row = await _done(db, task_id, now)
        return await attempt() if row is None else Cancelled(row, row.version - 1)

    return await certainty.certain(attempt, again)


async def is_so(db: Database, task_id: UUID, only: Only) -> bool:
    """Whether a task is unfinished and so."""
    return bool(await db.fetch("is_so", task_id, *only))


async def patch(
    db: Database,
    task_id: UUID,
    change: Change,
    if_version: int | None,
    now: datetime,
    decided: Decided | None = None,
    note: Note | None = None,
) -> Changed | None:
    """Change a task if it is pending and at `if_version`; None if it has ended or never was.

    With `decided` only if the task still is as it was then.
    """
    version, status, schedule, done_until = (None,) * 4 if decided is None else decided[:4]
    to = (decided.place if decided is not None else None) or Place(None, None)
    return await _change(
        db, task_id, now, note, "patch", if_version, *change[:_FIRST], version, status,
        to.occurrence, to.next_run_at, to.following, to.done_until, to.zone_data,
        [one[0] for one in to.skipped], [one[1] for one in to.skipped],
        schedule, done_until, 0 if decided is None else decided.recount, *change[_FIRST:],
    )  # fmt: skip


async def retry(
    db: Database, task_id: UUID, now: datetime, note: Note | None = None
) -> Changed | None:
    """Make a failed task due now; None if there is no failed task by that id.

    Raises `NameInUseError` if another task has its name by now.
    """
    try:
        return await _change(db, task_id, now, note, "retry")
    except asyncpg.UniqueViolationError:  # it is not unfinished, so it is not its id
        raise NameInUseError from None


async def _change(
    db: Database, task_id: UUID, now: datetime, note: Note | None, name: str, *more: Any
) -> Changed | None:
    async def attempt() -> Changed | None:
        rows = await audit.change(db, note, name, task_id, now, task_id, now, *more)
        return _changed(rows)

    async def again() -> Changed | None:
        row = await _done(db, task_id, now)
        return await attempt() if row is None else Changed(row, changed=True, slot_owner=None)

    return await certainty.certain(attempt, again)


async def _done(db: Database, task_id: UUID, now: datetime) -> TaskRow | None:
    """The task, if the change that was made `now` is the last one: then it was ours."""
    rows = await certainty.read_back(db, "get", [task_id])
    row = TaskRow(*rows[0]) if rows else None
    return row if row is not None and row.updated_at == now else None


def _changed(rows: list[Any]) -> Changed | None:
    if not rows:
        return None
    *row, changed, slot_owner = rows[0]
    return Changed(TaskRow(*row), changed, slot_owner)


async def runs(
    db: Database, task_id: UUID, after: tuple[int, datetime] | None, limit: int
) -> list[RunRow]:
    """The ended attempts of a task, newest first, after a (token, recorded_at)."""
    token, recorded_at = after or (None, None)
    return [RunRow(*row) for row in await db.fetch("runs", task_id, token, recorded_at, limit)]
