"""Periodic tasks in virtual time: what would run, what would be skipped, and when. No server, no clock.

Every decision is that of `duly.wheel.occurrences`, which nodes decide by. What is assumed: a worker is always free, a
run takes as long as is said, and none fails. In an outage nothing begins and no end is recorded; a run that is
under way goes on.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from duly.nodes.declared.reading import Declared
from duly.wheel import occurrences
from duly.wheel.occurrences import Course, Step
from duly.wheel.schedule import Plan, load

_NAMESPACE: Final = uuid.UUID("2d6c9a52-5d0e-4a4b-8c2f-3a5a1f7c9b11")


class Outage(NamedTuple):
    """From one instant to another nothing is dispatched or recorded."""

    begin: datetime
    end: datetime

    def over(self, at: datetime) -> datetime:
        """When what would happen `at` happens."""
        return self.end if self.begin <= at < self.end else at


class Player(NamedTuple):
    """A schedule to be played."""

    name: str
    plan: Plan
    overrun: str
    misfire_grace: float | None
    duration: timedelta


class Played(NamedTuple):
    """An occurrence that ran from `start` to `end`, or was skipped at `start` for a reason."""

    start: datetime
    name: str
    occurrence: datetime
    due: datetime
    end: datetime
    skipped: str | None


def player(declared: Declared, made: datetime, usual_s: float) -> Player:
    """As if it were submitted at `made`. `usual_s`: how long it runs where the file does not say."""
    new = declared.new
    assert new.schedule is not None
    seconds = usual_s if declared.expected_s is None else declared.expected_s
    plan = load(new.schedule, made)
    return Player(declared.name, plan, new.overrun, new.misfire_grace, timedelta(seconds=seconds))


def play(one: Player, until: datetime, outage: Outage | None) -> Iterator[Played]:
    """What becomes of its occurrences that are due before `until`, in the order of `start`.

    What is still owed then is not played.
    """
    task_id = uuid.uuid5(_NAMESPACE, one.name)
    step = occurrences.first(task_id, one.plan, one.overrun)
    course: Course | None = None
    free: datetime | None = None  # when the run before has ended
    while step.occurrence is not None and step.due is not None:
        course = _waiting(one, task_id, step, course)
        occurrence, due = step.occurrence, step.due
        now = due if free is None else max(due, free)
        now = now if outage is None else outage.over(now)
        if now >= until:
            return
        late = occurrences.late(course, now)
        if late is not None:
            yield from _skipped(one, course, late, now)
            step, free = late, now
            continue
        end = now + one.duration
        yield Played(now, one.name, occurrence, due, end, None)
        free = end if outage is None else outage.over(end)
        course = course._replace(next_run_at=None)
        step = occurrences.ended(course, free)
        if free < until:
            yield from _skipped(one, course, step, free)
        course = course._replace(runs_done=course.runs_done + occurrences.counts(course))


def _waiting(one: Player, task_id: uuid.UUID, step: Step, before: Course | None) -> Course:
    assert step.occurrence is not None
    fresh = Course(task_id, one.plan, one.overrun, one.misfire_grace, step.occurrence)
    done, runs = (None, 0) if before is None else (before.done_until, before.runs_done)
    return fresh._replace(
        next_run_at=step.due, following=step.following, runs_done=runs,
        done_until=done if step.done_until is None else step.done_until,
        skip_until=step.skip_until, skip_reason=step.skip_reason,
    )  # fmt: skip


def _skipped(one: Player, course: Course, step: Step, now: datetime) -> Iterator[Played]:
    for skip in step.skipped:
        due = one.plan.due(course.id, skip.occurrence)
        yield Played(now, one.name, skip.occurrence, due, now, skip.reason)
