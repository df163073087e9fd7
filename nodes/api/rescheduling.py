"""Changes that move a task along its schedule: a new schedule, a resume, a run at once.

Each reads where the task stands, decides, and writes if the task still is as it was read; else it
begins anew.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

import msgspec

from duly.actors import courses, wakes
from duly.actors.context import Context
from duly.nodes.api.problems import FieldError, Problem, invalid, unavailable
from duly.storage import courses as stored
from duly.storage import tasks
from duly.storage.audit import Note
from duly.storage.courses import CourseRow, Move, Place
from duly.storage.database import Database
from duly.storage.tasks import Change, Changed, Decided, Waiting
from duly.wheel import occurrences
from duly.wheel.durations import from_us
from duly.wheel.occurrences import Step
from duly.wheel.schedule import load
from duly.wheel.schedule_fields import WATCHED, ScheduleError

_TRIES = 200  # a replacement skips 1,000 occurrences with each


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """The task's state does not allow it; the message completes "this task …"."""


class Rescheduling:
    """Works on the API's own connections."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._db: Database = context.api_db

    async def patch(
        self, task_id: UUID, wanted: Change, if_version: int | None, noted: Note
    ) -> Changed | None:
        """A change that names a schedule or an overrun policy; see `tasks.patch`."""
        for _ in range(_TRIES):
            row = (await stored.courses(self._db, [task_id])).get(task_id)
            if row is None or (if_version is not None and row.version != if_version):
                return await tasks.patch(
                    self._db, task_id, wanted, if_version, self._now(), note=noted
                )
            now = self._now()
            step = _changed(row, wanted, now)
            if step is not None and step.unfinished:
                if await self._skip(row, _place(row, step), now) and if_version is not None:
                    if_version += 1
                continue
            place, recount = None, 0
            if step is not None:
                place = _place(row, step, wanted.schedule)
                recount = _recount(row, step, wanted.schedule)
            at = _as_seen(row)._replace(place=place, recount=recount)
            done = await tasks.patch(self._db, task_id, wanted, if_version, now, at, noted)
            if done is None or done.changed or not _is_allowed(row, wanted):
                return done
        raise unavailable("the task changes all the time")

    async def _skip(self, row: CourseRow, place: Place, now: datetime) -> bool:
        """Skip some, before the schedule is replaced; answers whether the task has another version."""
        if row.status == "running":  # its version is the token of its attempt
            at = _as_seen(row)._replace(place=place)
            await tasks.patch(self._db, row.id, Change(may_run=True), None, now, at)
            return False
        return await stored.advance_one(self._db, Move(row.id, row.version, place), now) is not None

    async def resume(self, task_id: UUID, noted: Note | None) -> None:
        """End a pause. Raises `Refused` for a finished task."""
        await self._until_done(task_id, noted, self._resume)

    async def run_now(self, task_id: UUID, noted: Note | None) -> None:
        """Make a task due now. Raises `Refused` if it runs, is paused, or is finished."""
        await self._until_done(task_id, noted, self._run_now)

    async def _until_done(
        self,
        task_id: UUID,
        noted: Note | None,
        act: Callable[[CourseRow, datetime, Note | None], Awaitable[bool]],
    ) -> None:
        for _ in range(_TRIES):
            row = (await stored.courses(self._db, [task_id])).get(task_id)
            if row is None:
                raise Refused("is finished")
            if await act(row, self._now(), noted):
                return
        raise unavailable("the task changes all the time")

    async def _resume(self, row: CourseRow, now: datetime, noted: Note | None) -> bool:
        if not row.paused:
            return True
        if row.status == "running":
            return await stored.pause(self._db, row.id, now, paused=False, note=noted)
        step = None if row.schedule is None else occurrences.resumed(_course(row), now)
        place = courses.stay(row) if step is None else _place(row, step)
        return await self._move(row, place, now, noted, resume=True)

    async def _run_now(self, row: CourseRow, now: datetime, noted: Note | None) -> bool:
        if row.status == "running":
            raise Refused("is running")
        if row.paused:
            raise Refused("is paused")
        if row.schedule is None:
            if row.next_run_at <= now:
                return True
            change = Change(due=now, wait_no_more=True)
            done = await tasks.patch(self._db, row.id, change, row.version, now, note=noted)
            if done is None or not done.changed:
                return False
            await wakes.wake(self._context, [done.waiting])
            return True
        step = occurrences.run_now(_course(row), now)
        return step is None or await self._move(row, _place(row, step), now, noted)

    async def _move(
        self,
        row: CourseRow,
        place: Place,
        now: datetime,
        noted: Note | None,
        *,
        resume: bool = False,
    ) -> bool:
        move = Move(row.id, row.version, place)
        moved = await stored.advance_one(self._db, move, now, resume=resume, note=noted)
        if moved is not None and moved.due is not None:
            await wakes.wake(self._context, [Waiting(moved.due, moved.slot_owner)])
        return moved is not None

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


def _changed(row: CourseRow, wanted: Change, now: datetime) -> Step | None:
    """Where the task goes under its new schedule; None: it stays where it is."""
    if row.schedule is None:
        if wanted.schedule is not None:
            raise invalid(FieldError("schedule", "a one-off task cannot become periodic"))
        return None
    overrun = wanted.overrun or row.overrun
    course = _course(row)
    if wanted.schedule is None or _same(row.schedule, wanted.schedule):
        is_moved = overrun != row.overrun and row.status == "pending" and not row.skip_until
        return occurrences.requeued(course, overrun) if is_moved else None
    plan = load(wanted.schedule, row.created_at)
    running = row.status == "running"
    runs = row.runs_done + (running and occurrences.counts(course))
    if plan.max_runs is not None and runs >= plan.max_runs:
        said = f"the task has run {runs} times already"
        raise invalid(FieldError("schedule.max_runs", said))
    if plan.after(max(now, course.done if running else now)) is None:
        raise invalid(FieldError("schedule", "does not fire any more"))
    course = course._replace(begun=course.begun or running)
    step = occurrences.replaced(course, plan, overrun, now)
    if step.occurrence is None:
        raise invalid(FieldError("schedule", "does not fire any more"))
    return step


def _as_seen(row: CourseRow) -> Decided:
    return Decided(row.version, row.status, row.schedule, row.done_until, None)


def _recount(row: CourseRow, step: Step, schedule: str | None) -> int:
    """For an occurrence that goes on under another schedule."""
    if schedule is None or step.occurrence != row.occurrence:
        return 0
    return occurrences.recounted(_course(row), load(schedule, row.created_at))


def _same(one: str, other: str) -> bool:
    """Whether two schedules fire at the same times; what is watched of them may differ."""
    first, second = (
        {name: value for name, value in msgspec.json.decode(text).items() if name not in WATCHED}
        for text in (one, other)
    )
    return first == second


def _is_allowed(row: CourseRow, wanted: Change) -> bool:
    """Whether a change that was not made may be made if it is decided anew."""
    return row.status == "pending" or (wanted.may_run and row.schedule is not None)


def _course(row: CourseRow) -> occurrences.Course:
    try:
        return courses.course(row)
    except ScheduleError as error:
        raise Problem(409, "Conflict", f"the schedule is not understood: {error}") from None


def _place(row: CourseRow, step: Step, schedule: str | None = None) -> Place:
    text = schedule or row.schedule
    assert text is not None
    return courses.place(load(text, row.created_at), step)
