"""What a job does to one task: the same as the call for one task, through the same statements."""

from datetime import datetime

import msgspec

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.feed import Change
from duly.nodes.api.cancelling import Cancelling
from duly.nodes.api.problems import Problem
from duly.nodes.api.rescheduling import Refused, Rescheduling
from duly.storage import courses, tasks
from duly.storage.audit import Note
from duly.storage.bulk import Action, Job
from duly.storage.errors import NameInUseError
from duly.storage.listing import Filter
from duly.storage.tasks import TaskRow
from duly.wheel.durations import from_us

ALLOWED: dict[Action, tuple[str, ...]] = {
    "cancel": ("pending", "running"),
    "retry": ("failed",),
    "pause": ("pending", "running"),
    "resume": ("pending", "running"),
    "reschedule": ("pending",),
}
"""In which states a task allows an action."""


def narrowed(action: Action, where: Filter) -> Filter:
    """A filter without those tasks that the action would not change anyway."""
    allowed = ALLOWED[action]
    if where.status is None and len(allowed) == 1:
        where = where._replace(status=allowed[0])
    if action in ("pause", "resume") and where.paused is None:
        where = where._replace(paused=action == "resume")
    return where


_TOLD: dict[Action, Change] = {
    "retry": "changed", "pause": "paused", "resume": "resumed", "reschedule": "changed",
}  # fmt: skip


class Acts:
    """Carries out a job's action on one task after another."""

    def __init__(self, context: Context, job: Job, where: Filter) -> None:
        self._context = context
        self._db = context.api_db
        self._job = job
        self._cancelling = Cancelling(context)
        self._rescheduling = Rescheduling(context)
        details = msgspec.json.encode({"bulk": job.id}).decode()
        # What has changed since it was found, so that it would not be found now, stays: who cancels what waits
        # does not want to break off what has begun meanwhile.
        self._only = tasks.Only(
            where.status, where.tag, where.due_before, where.due_after, where.paused
        )
        self._noted = Note(job.created_by, "admin", job.action, details)

    def concerns(self, row: TaskRow) -> bool:
        """False for a task that came, or failed again, after the job had begun, or is of another store."""
        begun = self._job.created_at
        again = (
            self._job.action == "retry" and row.finished_at is not None and row.finished_at > begun
        )
        return row.created_at <= begun and not again and self._context.holds(row.id)

    async def act(self, row: TaskRow) -> bool:
        """Do it; False if the task's state does not allow it (any more).

        It may be done twice: what was done is then not done again. Raises `StoreUnavailableError`.
        """
        try:
            done = await self._act(row)
        except (Refused, Problem, NameInUseError):
            return False
        if done and self._job.action != "cancel":  # which tells of itself
            self._context.feed.tell(_TOLD[self._job.action], [row.id])
        return done

    async def _act(self, row: TaskRow) -> bool:
        match self._job.action:
            case "cancel":
                return await self._cancel(row)
            case "retry":
                done = await tasks.retry(self._db, row.id, self._now(), self._noted)
                if done is None:
                    return False
                await wakes.wake(self._context, [done.waiting])
                return True
            case "pause":
                return await courses.pause(
                    self._db, row.id, self._now(), paused=True, note=self._noted
                )
            case "resume":
                await self._rescheduling.resume(row.id, self._noted)
                return True
            case "reschedule":
                return await self._reschedule(row)

    async def _cancel(self, row: TaskRow) -> bool:
        done = await self._cancelling.cancel(row.id, self._noted, self._only)
        return done is not None

    async def _reschedule(self, row: TaskRow) -> bool:
        if row.next_run_at == self._job.due:
            return True
        wanted = tasks.Change(due=self._job.due)
        done = await tasks.patch(
            self._db, row.id, wanted, row.version, self._now(), note=self._noted
        )
        if done is None or not done.changed:
            return False
        if not done.row.paused:
            await wakes.wake(self._context, [done.waiting])
        return True

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())
