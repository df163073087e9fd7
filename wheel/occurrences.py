"""Which occurrence of a periodic task comes next, and which are skipped on the way. Pure.

An occurrence is known by its nominal time, as the schedule says it; when it is *due* is a little
later if the schedule has jitter. Every decision starts from what is stored, never from when
something happened to run, and accounts for each occurrence: it waits, runs, or is skipped.

At most `limit` occurrences are skipped in one decision. What is left over is marked (`skip_until`),
and skipped by the decisions after it.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Literal, NamedTuple
from uuid import UUID

from duly.wheel.schedule import Plan

SKIPS_MAX = 1000
"""Occurrences that one decision skips at most."""

Overrun = Literal["skip", "queue"]
_TICK = timedelta(microseconds=1)


class Course(NamedTuple):
    """Where a task stands: the occurrence that waits or runs, and what is over.

    `done_until`: every occurrence up to here has run or was skipped; None: none yet. `following`:
    from this instant on it matters that the occurrence is late. `begun`: it had an attempt.
    `skip_until`: what is due up to here is to be skipped, as `skip_reason`. `misfire_grace` in
    seconds. `next_run_at` is None while it runs.
    """

    id: UUID
    plan: Plan
    overrun: str
    misfire_grace: float | None
    occurrence: datetime
    next_run_at: datetime | None = None
    following: datetime | None = None
    done_until: datetime | None = None
    runs_done: int = 0
    begun: bool = False
    skip_until: datetime | None = None
    skip_reason: str | None = None

    @property
    def done(self) -> datetime:
        """Up to here everything is over once the present occurrence is."""
        return self.occurrence if self.done_until is None else max(self.done_until, self.occurrence)


class Skip(NamedTuple):
    """An occurrence that is not run, and why: `overrun`, `misfire`, `paused`, `replaced` or `ended`.

    `through`: it stands for every occurrence after it, too, up to this instant.
    """

    occurrence: datetime
    reason: str
    through: datetime | None = None


class Step(NamedTuple):
    """Where a task goes. `occurrence` and `due` None: its schedule is over.

    `done_until` None: as it was. `unfinished`: more is to be skipped before anything runs.
    """

    occurrence: datetime | None
    due: datetime | None
    following: datetime | None = None
    done_until: datetime | None = None
    skip_until: datetime | None = None
    skip_reason: str | None = None
    skipped: tuple[Skip, ...] = ()
    unfinished: bool = False


def first(task_id: UUID, plan: Plan, overrun: str) -> Step:
    """The first occurrence of a new task."""
    return _wait(task_id, plan, overrun, None)


def counts(course: Course) -> bool:
    """Whether the present occurrence is one of the schedule's, not an extra one."""
    return course.plan.is_on_grid(course.occurrence)


def recounted(course: Course, plan: Plan) -> int:
    """What `runs_done` needs, so that the present occurrence counts under `plan` as it did before."""
    return counts(course) - plan.is_on_grid(course.occurrence)


def ended(course: Course, now: datetime, limit: int = SKIPS_MAX) -> Step:
    """After the present occurrence has run to its end.

    With `skip` what came due meanwhile is skipped; with `queue` the very next one follows.
    """
    plan = course.plan
    if plan.max_runs is not None and course.runs_done + counts(course) >= plan.max_runs:
        return Step(None, None, done_until=course.done)
    if course.overrun == "queue":
        return _wait(course.id, plan, course.overrun, course.done)
    return _skip_due(course, course.done, now, "overrun", limit, ())


def late(course: Course, now: datetime, limit: int = SKIPS_MAX) -> Step | None:
    """At a claim that was refused because of lateness; None: it may be claimed as it is."""
    if course.begun:
        return None
    if course.skip_until is not None:
        reason = course.skip_reason or "misfire"
        if _due(course, course.occurrence) > course.skip_until:
            return _wait(course.id, course.plan, course.overrun, course.done_until)
        if limit < 1:
            return None
        skipped = (Skip(course.occurrence, reason),)
        return _skip_due(course, course.done, course.skip_until, reason, limit, skipped)
    step = _coalesced(course, now, limit)
    if step is not None and step.unfinished:
        return step
    return _within_grace(course, step, now, limit)


def _coalesced(course: Course, now: datetime, limit: int) -> Step | None:
    """With `skip` the latest that is due runs, those before it are skipped."""
    if course.following is None or course.following > now:
        return None
    later, complete = _came_due(course, course.done, now, limit)
    if not later:  # it was computed with other zone data
        return requeued(course, course.overrun)
    passed = later[:-1]
    over = passed[-1] if passed else course.done
    return _wait(course.id, course.plan, course.overrun, over)._replace(
        skipped=_skips([course.occurrence, *passed], "misfire"), unfinished=not complete
    )


def _within_grace(course: Course, step: Step | None, now: datetime, limit: int) -> Step | None:
    """What waits is skipped too if it is later than the grace, and all that is as late."""
    at = course.next_run_at if step is None else step.due
    if course.misfire_grace is None or at is None:
        return step
    latest = now - timedelta(seconds=course.misfire_grace) - _TICK
    if at > latest:
        return step
    skipped = () if step is None else step.skipped
    if limit <= len(skipped):
        return step
    target, done = course.occurrence, course.done
    if step is not None and step.occurrence is not None:
        target = done = step.occurrence
    return _skip_due(course, done, latest, "misfire", limit, (*skipped, Skip(target, "misfire")))


def resumed(course: Course, now: datetime, limit: int = SKIPS_MAX) -> Step | None:
    """At the end of a pause: what came due in it is skipped. None: it stays where it is."""
    if course.begun or course.next_run_at is None or course.next_run_at > now:
        return None
    skipped = (Skip(course.occurrence, "paused"),)
    return _skip_due(course, course.done, now, "paused", limit, skipped)


def replaced(
    course: Course, plan: Plan, overrun: str, now: datetime, limit: int = SKIPS_MAX
) -> Step:
    """Under another schedule, which goes on with its first occurrence after now.

    What the old one still owed is skipped, except that what has begun goes on, and the new one
    follows. An unfinished step stays under the old schedule, and the replacement has to be decided
    again.
    """
    is_extra = course.occurrence <= now and not counts(course)
    if course.begun or (is_extra and course.skip_until is None):
        owed = course.plan.between(course.done, now, limit + 1)
        over = max(now, course.done) if len(owed) <= limit else owed[limit - 1]
        return Step(
            course.occurrence, course.next_run_at, done_until=over,
            skipped=_skips(owed[:limit], "replaced"), unfinished=len(owed) > limit,
        )  # fmt: skip
    over = now
    skipped: tuple[Skip, ...] = ()
    if course.occurrence <= now or (course.next_run_at is not None and course.next_run_at <= now):
        owed = [course.occurrence, *course.plan.between(course.done, now, limit)]
        over, skipped = max(now, course.done), _skips(owed[:limit], "replaced")
        if len(owed) > limit:
            old = _leftover(course, owed[limit - 1], now, "replaced", skipped)
            return old._replace(unfinished=True)
    elif course.done_until is not None:
        over = max(now, course.done_until)
    return _wait(course.id, plan, overrun, over)._replace(skipped=skipped)


def cancelled(course: Course, now: datetime, limit: int = SKIPS_MAX) -> tuple[Skip, ...]:
    """What came due after the occurrence that waits or runs, at the end of the task by a cancel.

    That cannot be put off: if it is more than `limit`, the last one stands for the rest. After the last
    that `max_runs` allows there is no other.
    """
    runs = course.runs_done + counts(course)
    if course.begun and course.plan.max_runs is not None and runs >= course.plan.max_runs:
        return ()
    passed, complete = _came_due(course, course.done, now, limit)
    skipped = _skips(passed, "ended")
    return skipped if complete else (*skipped[:-1], skipped[-1]._replace(through=now))


def requeued(course: Course, overrun: str) -> Step:
    """Where it is, under another overrun policy."""
    usual = course.next_run_at == _due(course, course.occurrence) and counts(course)
    then = None
    if overrun == "skip" and usual and not course.begun:
        then = course.plan.after(course.occurrence)
    following = None if then is None else _due(course, then)
    return Step(course.occurrence, course.next_run_at, following, course.done_until)


def run_now(course: Course, now: datetime) -> Step | None:
    """Due now: the occurrence that waits if it is late, put off or begun, else an extra one.

    An extra one is known by `now` and does not move the grid. None: it is due already.
    """
    assert course.next_run_at is not None
    if course.skip_until is not None or course.next_run_at <= now:
        return None
    if course.begun or course.occurrence <= now:
        return Step(course.occurrence, now, course.following, course.done_until)
    extra = now + _TICK if course.plan.is_on_grid(now) else now
    return Step(extra, extra, None, course.done_until)


def rezoned(course: Course, now: datetime) -> Step | None:
    """The occurrence that waits, computed anew with other zone data.

    None: it stays, since it is due, has begun, or was put to another time.
    """
    at = course.next_run_at
    is_usual = at == _due(course, course.occurrence) and course.skip_until is None
    if course.begun or at is None or at <= now or not is_usual:
        return None
    step = _wait(course.id, course.plan, course.overrun, course.done_until)
    if step.occurrence is None:
        return step._replace(skipped=(Skip(course.occurrence, "ended"),))
    return step


def _wait(task_id: UUID, plan: Plan, overrun: str, done: datetime | None) -> Step:
    """Wait for the first occurrence after `done`; None: for the first of all."""
    occurrence = plan.first() if done is None else plan.after(done)
    if occurrence is None:
        return Step(None, None, done_until=done)
    then = plan.after(occurrence) if overrun == "skip" else None
    following = None if then is None else plan.due(task_id, then)
    return Step(occurrence, plan.due(task_id, occurrence), following, done)


def _skip_due(
    course: Course,
    done: datetime,
    until: datetime,
    reason: str,
    limit: int,
    skipped: tuple[Skip, ...],
) -> Step:
    """Skip what is due up to `until` after `done`, and wait for the next."""
    passed, complete = _came_due(course, done, until, limit - len(skipped))
    over = passed[-1] if passed else done
    skipped = (*skipped, *_skips(passed, reason))
    if not complete:
        return _leftover(course, over, until, reason, skipped)
    return _wait(course.id, course.plan, course.overrun, over)._replace(skipped=skipped)


def _leftover(
    course: Course, done: datetime, until: datetime, reason: str, skipped: tuple[Skip, ...]
) -> Step:
    """More of the same is to be skipped: no claim may take it before that."""
    step = _wait(course.id, course.plan, course.overrun, done)._replace(skipped=skipped)
    if step.occurrence is None or step.due is None or step.due > until:
        return step
    return step._replace(
        due=until, following=step.occurrence, skip_until=until, skip_reason=reason, unfinished=True
    )


def _came_due(
    course: Course, after: datetime, until: datetime, limit: int
) -> tuple[list[datetime], bool]:
    """The first occurrences after an instant that are due by `until`, and whether that is all."""
    found = course.plan.between(after, until, limit + 1)
    due = list(takewhile(lambda one: _due(course, one) <= until, found))
    return due[:limit], len(due) <= limit


def _due(course: Course, occurrence: datetime) -> datetime:
    return course.plan.due(course.id, occurrence)


def _skips(occurrences: Iterable[datetime], reason: str) -> tuple[Skip, ...]:
    return tuple(Skip(one, reason) for one in occurrences)
