"""Where periodic tasks stand in their schedules, and their moves along them while they wait."""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage import audit, certainty
from duly.storage.audit import Note
from duly.storage.database import Database
from duly.storage.slots import DueRow, due_row


class CourseRow(NamedTuple):
    """An unfinished task, as far as its next occurrence is concerned. `schedule` is JSON text.

    `misfire_grace` in seconds. `done_until`, `following`, `begun`, `skip_until`: see the migration
    that brought them.
    """

    id: UUID
    version: int
    status: str
    paused: bool
    created_at: datetime
    schedule: str | None
    overrun: str
    misfire_grace: float | None
    occurrence: datetime
    next_run_at: datetime
    following: datetime | None
    done_until: datetime | None
    runs_done: int
    begun: bool
    skip_until: datetime | None
    skip_reason: str | None
    zone_data: str | None
    completed: bool = False
    """Its attempt runs, and a user's transaction has completed it: nothing else can become of it."""


class Place(NamedTuple):
    """Where a task waits for an occurrence, or None for both: its schedule is over.

    `skipped`: occurrences that are recorded as skipped with it, each with an error (JSON text), at
    most about 1,000 in one statement.
    """

    occurrence: datetime | None
    next_run_at: datetime | None
    following: datetime | None = None
    done_until: datetime | None = None
    skip_until: datetime | None = None
    skip_reason: str | None = None
    zone_data: str | None = None
    skipped: Sequence[tuple[datetime, str]] = ()


class Move(NamedTuple):
    """A pending task at a version, and where it goes."""

    id: UUID
    version: int
    to: Place


class Moved(NamedTuple):
    """A task that has moved; `due` is None if its schedule is over, or it is paused."""

    id: UUID
    due: DueRow | None
    slot_owner: str | None


def skipped_columns(places: Sequence[tuple[UUID, Place]]) -> list[list[Any]]:
    """Task, occurrence and error of everything that is skipped."""
    rows = list(chain.from_iterable(zip(repeat(i), p.skipped, strict=False) for i, p in places))
    return [[i for i, _ in rows], [one[0] for _, one in rows], [one[1] for _, one in rows]]


async def courses(db: Database, ids: Sequence[UUID]) -> dict[UUID, CourseRow]:
    """Of these tasks, those that are not finished."""
    return {row["id"]: CourseRow(*row) for row in await db.fetch("courses", list(ids))}


async def advance(db: Database, moves: Sequence[Move], now: datetime) -> list[Moved]:
    """Move pending tasks that still have these versions."""
    return _moved(await db.fetch("advance", *_columns(moves, now, resume=False)))


async def advance_one(
    db: Database, move: Move, now: datetime, *, resume: bool = False, note: Note | None = None
) -> Moved | None:
    """Move one task; None if it has another version by now. For certain, as all that clients do.

    `resume`: and end its pause.
    """
    columns = _columns([move], now, resume=resume)

    async def attempt() -> Moved | None:
        moved = _moved(await audit.change(db, note, "advance", move.id, now, *columns))
        return moved[0] if moved else None

    async def again() -> Moved | None:
        row = await _changed_at(db, move.id, now)
        return await attempt() if row is None else Moved(move.id, None, None)

    return await certainty.certain(attempt, again)


def _columns(moves: Sequence[Move], now: datetime, *, resume: bool) -> list[Any]:
    return [
        [move.id for move in moves],
        [move.version for move in moves],
        [move.to.occurrence for move in moves],
        [move.to.next_run_at for move in moves],
        [move.to.following for move in moves],
        [move.to.done_until for move in moves],
        [move.to.skip_until for move in moves],
        [move.to.skip_reason for move in moves],
        [move.to.zone_data for move in moves],
        *skipped_columns([(move.id, move.to) for move in moves]),
        resume,
        now,
    ]


def _moved(rows: list[Any]) -> list[Moved]:
    return [
        Moved(row["id"], None if row["paused"] else due_row(row), row["slot_owner"]) for row in rows
    ]


async def pause(
    db: Database, task_id: UUID, now: datetime, *, paused: bool, note: Note | None = None
) -> bool:
    """Pause a task, or end the pause of one that runs; False if there was nothing to change."""

    async def attempt() -> bool:
        args = (task_id, now, paused, note and note.who)
        return bool(await audit.change(db, note, "pause", task_id, now, *args))

    async def again() -> bool:
        return await _changed_at(db, task_id, now) is not None or await attempt()

    return await certainty.certain(attempt, again)


async def _changed_at(db: Database, task_id: UUID, now: datetime) -> Any:
    """The task, if its last change was made `now`: then it was ours."""
    rows = await certainty.read_back(db, "get", [task_id])
    return rows[0] if rows and rows[0]["updated_at"] == now else None


async def zone_outdated(db: Database, owner: str, version: str, limit: int) -> list[UUID]:
    """Waiting tasks in slots of `owner` whose time was computed with older zone data."""
    return [row["id"] for row in await db.fetch("zone_outdated", owner, version, limit)]
