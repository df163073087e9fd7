"""Periodic tasks as they are stored, and as `wheel.occurrences` decides over them."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from duly.storage.claims import Attempt
from duly.storage.courses import CourseRow, Place
from duly.wheel import zones
from duly.wheel.occurrences import Course, Skip, Step
from duly.wheel.schedule import Plan, load

_MESSAGES = {
    "overrun": "it came due before the occurrence before it had ended",
    "misfire": "it was too late",
    "paused": "the task was paused",
    "replaced": "the schedule was replaced",
    "ended": "the task had ended",
}


def course(row: CourseRow) -> Course:
    """Of a task that waits."""
    assert row.schedule is not None
    return Course(
        row.id, load(row.schedule, row.created_at), row.overrun, row.misfire_grace, row.occurrence,
        row.next_run_at, row.following, row.done_until, row.runs_done, row.begun, row.skip_until,
        row.skip_reason,
    )  # fmt: skip


def running(attempt: Attempt) -> Course:
    """Of a task that runs."""
    assert attempt.schedule is not None
    plan = load(attempt.schedule, attempt.created_at)
    return Course(
        attempt.id, plan, attempt.overrun, attempt.misfire_grace, attempt.occurrence,
        done_until=attempt.done_until, runs_done=attempt.runs_done,
    )  # fmt: skip


def place(plan: Plan, step: Step) -> Place:
    """Where a step leads, as it is stored."""
    return Place(
        step.occurrence,
        step.due,
        step.following,
        step.done_until,
        step.skip_until,
        step.skip_reason,
        None if plan.every is not None else zones.VERSION,
        skips(step.skipped),
    )


def skips(skipped: Sequence[Skip]) -> list[tuple[datetime, str]]:
    """What is skipped, with the error of each."""
    return [(one.occurrence, _error(one.reason, one.through)) for one in skipped]


@lru_cache(64)
def _error(reason: str, through: datetime | None) -> str:
    said: dict[str, object] = {"type": reason, "message": _MESSAGES[reason]}
    if through is not None:
        said |= {"message": f"{_MESSAGES[reason]}, as had all up to {through}", "through": through}
    return msgspec.json.encode(said).decode()


def stay(row: CourseRow) -> Place:
    """Where a task is already."""
    return Place(
        row.occurrence, row.next_run_at, row.following, row.done_until, row.skip_until,
        row.skip_reason, row.zone_data,
    )  # fmt: skip
