"""Cancels a task, and says of every occurrence that came due by then what became of it."""

from datetime import datetime
from uuid import UUID

from duly.actors import courses
from duly.storage import courses as stored
from duly.storage import tasks
from duly.storage.audit import Note
from duly.storage.courses import CourseRow, Place
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.tasks import Cancelled, Decided, Only
from duly.wheel import occurrences
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import from_us
from duly.wheel.schedule_fields import ScheduleError

_TRIES = 200


async def cancel(
    db: Database,
    clock: ClusterClock,
    task_id: UUID,
    note: Note | None = None,
    only: Only | None = None,
) -> Cancelled | None:
    """Cancel a pending or running task (`only`: while it is so); None if there is none by that id.

    None, too, of one whose attempt has completed, though that is not recorded yet. A one-off is one statement. Of a periodic task the occurrence that waits or runs is cancelled, and
    what else came due is skipped, as `ended`: read, decided, and written if it is still as it was read.
    Raises `StoreUnavailableError` if it changes all the time, too.
    """
    decided: Decided | None = None
    now = from_us(clock.now_us())
    for _ in range(_TRIES):
        done = await tasks.cancel(db, task_id, now, note, decided, only)
        if done is not None:
            return done
        row = (await stored.courses(db, [task_id])).get(task_id)
        if row is None or row.completed:
            return None
        if only is not None and not await tasks.is_so(db, task_id, only):
            return None
        now = from_us(clock.now_us())
        decided = None if row.schedule is None else _decide(row, now)
    raise StoreUnavailableError("the task changes all the time")


def _decide(row: CourseRow, now: datetime) -> Decided:
    try:
        course = courses.course(row)
        course = course._replace(begun=course.begun or row.status == "running")
        skipped = courses.skips(occurrences.cancelled(course, now))
    except ScheduleError:  # nobody can say what else came due
        skipped = []
    place = Place(None, None, skipped=skipped)
    return Decided(row.version, row.status, row.schedule, row.done_until, place)
