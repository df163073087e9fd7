"""Periodic tasks as they are stored, and as `wheel.occurrences` decides over them."""

import msgspec

from duly.storage.claims import Attempt
from duly.storage.courses import CourseRow, Place
from duly.wheel import zones
from duly.wheel.occurrences import Course, Step
from duly.wheel.schedule import Plan, load

_ERRORS = {
    reason: msgspec.json.encode({"type": reason, "message": message}).decode()
    for reason, message in (
        ("overrun", "it came due before the occurrence before it had ended"),
        ("misfire", "it was too late"),
        ("paused", "the task was paused"),
        ("replaced", "the schedule was replaced"),
    )
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
        [(one.occurrence, _ERRORS[one.reason]) for one in step.skipped],
    )


def stay(row: CourseRow) -> Place:
    """Where a task is already."""
    return Place(
        row.occurrence, row.next_run_at, row.following, row.done_until, row.skip_until,
        row.skip_reason, row.zone_data,
    )  # fmt: skip
