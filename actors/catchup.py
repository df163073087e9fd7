"""Brings periodic tasks up to date that are too late to be claimed as they are.

After an outage a task may have missed any number of occurrences. They are recorded as skipped in
bounded bites, at most `SKIPS_MAX` in a statement, each task in turn; the rest of the node's work goes on
beside. Until the last bite no claim can take the task (`following`), and a crash in between leaves
it where the last bite has put it: due again a moment later, for whoever owns its slot then.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from duly.actors import courses, wakes
from duly.actors.context import Context
from duly.actors.messages import Missed
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, MailboxClosedError
from duly.storage import courses as stored
from duly.storage.courses import CourseRow, Move
from duly.storage.errors import StoreUnavailableError
from duly.storage.tasks import Waiting
from duly.wheel import occurrences
from duly.wheel.durations import from_us
from duly.wheel.occurrences import SKIPS_MAX, Course
from duly.wheel.schedule_fields import ScheduleError

log = logging.getLogger("duly.catchup")

_LEAD = timedelta(seconds=2)
"""An unfinished task is due again so much later, in case that nobody goes on with it before."""
_TASKS = 200
_TELL_FROM = 10_000  # occurrences: a catch-up of so many is worth a line


class CatchUp(Actor[Missed]):
    """Takes some of the tasks it knows of at a time; those that need more go to the end."""

    name = "catchup"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.catchup)
        self._context = context
        self._late: dict[UUID, int] = {}  # task -> occurrences skipped so far
        self._unreadable: set[UUID] = set()
        self._patience = Patience("catching up with schedules", log)

    async def run(self) -> None:
        while True:
            try:
                await self._take_messages()
            except MailboxClosedError:
                return
            try:
                await self._step()
            except StoreUnavailableError as error:
                await self.pause(self._patience.failed(error))
            if self.stopping.is_set():
                return  # the tasks are due again soon, for their next owner

    async def _take_messages(self) -> None:
        """Wait for work, but not while there is any."""
        for message in await self.mailbox.receive_batch(64, 0.0 if self._late else None):
            for task_id in message.ids:
                self._late.setdefault(task_id, 0)
        self.mailbox.handled()

    async def _step(self) -> None:
        some = list(self._late)[:_TASKS]
        now = from_us(self._context.clock.now_us())
        rows = await stored.courses(self._context.db, some)
        moves, unfinished, untouched = self._decide(rows, some, now)
        moved = await stored.advance(self._context.db, moves, now) if moves else []
        self._patience.worked()
        done = {one.id for one in moved}
        self._context.meters.skipped(sum(len(m.to.skipped) for m in moves if m.id in done))
        late = (m.id for m in moves if m.id in done and m.to.skipped)
        self._context.feed.tell("skipped", late)
        for move in moves:
            so_far = self._late.pop(move.id) + len(move.to.skipped)
            if move.id in unfinished:
                self._late[move.id] = so_far  # at the end of the line
            elif so_far >= _TELL_FROM:
                log.info("task %s: %d missed occurrences were skipped", move.id, so_far)
        for task_id in untouched:
            del self._late[task_id]
        ready = [one for one in moved if one.due is not None and one.id not in unfinished]
        await wakes.wake(self._context, [Waiting(o.due, o.slot_owner) for o in ready if o.due])

    def _decide(
        self, rows: dict[UUID, CourseRow], some: list[UUID], now: datetime
    ) -> tuple[list[Move], set[UUID], list[UUID]]:
        """Moves with at most `SKIPS_MAX` skips; which of them need more; what needs no move."""
        moves: list[Move] = []
        unfinished: set[UUID] = set()
        untouched: list[UUID] = []
        room = SKIPS_MAX
        for task_id in some:
            if room < 1:
                break
            row = rows.get(task_id)
            course = None if row is None else self._course(row)
            step = None if course is None else occurrences.late(course, now, room)
            if row is None or course is None or step is None:
                untouched.append(task_id)
                continue
            if step.unfinished:
                unfinished.add(task_id)
                step = step._replace(due=now + _LEAD)
            room -= len(step.skipped)
            moves.append(Move(task_id, row.version, courses.place(course.plan, step)))
        return moves, unfinished, untouched

    def _course(self, row: CourseRow) -> Course | None:
        """Of a task that can go on."""
        if row.status != "pending" or row.paused or row.schedule is None:
            return None
        try:
            return courses.course(row)
        except ScheduleError as error:
            if row.id not in self._unreadable:  # each sweep brings it again
                log.error("task %s cannot go on: its schedule: %s", row.id, error)
                self._unreadable.add(row.id)
            return None
