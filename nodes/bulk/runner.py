"""Carries out jobs, one at a time: takes over any whose node is gone, and goes on where that one was.

A page of tasks is read and acted on, then the place is recorded; a node that is not the owner any more
hears so from that, and lets go. What is in a page that was not recorded is acted on again: that changes
nothing, since each change depends on the state of its task.
"""

import asyncio
import logging
import random
from datetime import datetime, timedelta
from typing import NoReturn

import msgspec

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.nodes.api import queries
from duly.nodes.bulk.acts import Acts, narrowed
from duly.storage import bulk, listing
from duly.storage.bulk import Job
from duly.storage.errors import StoreUnavailableError
from duly.storage.tasks import TaskRow
from duly.wheel.durations import from_us

log = logging.getLogger("duly.bulk")

_LOOK_EVERY_S = 2.0
_DEAD_S = 15.0
"""An owner that has recorded nothing for so long is gone."""
_PAGE_MAX = 100
_AT_ONCE = 4
_BREATH_S = 0.02  # after a page without any task that fits


class BulkRunner(Actor[NoReturn]):
    """Looks for work every two seconds."""

    name = "bulk"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("bulk", 1))
        self._context = context
        self._db = context.api_db
        self._patience = Patience("carrying out bulk actions", log)

    async def run(self) -> None:
        wait_s = _LOOK_EVERY_S
        while not await self.pause(wait_s * random.uniform(0.8, 1.2)):
            try:
                now = self._now()
                dead_since = now - timedelta(seconds=_DEAD_S)
                job = await bulk.take(self._db, self._context.node_id, dead_since, now)
                if job is not None:
                    await self._carry_out(job)
                self._patience.worked()
                wait_s = _LOOK_EVERY_S
            except StoreUnavailableError as error:
                wait_s = max(_LOOK_EVERY_S, self._patience.failed(error))

    async def _carry_out(self, job: Job) -> None:
        log.info("bulk %s %s goes on", job.action, job.id)
        try:
            await self._pages(job)
        except StoreUnavailableError:
            raise
        except Exception as error:
            log.exception("bulk %s %s failed", job.action, job.id)
            await bulk.record(self._db, job, self._now(), end="failed", error=repr(error))

    async def _pages(self, job: Job) -> None:
        where = narrowed(job.action, queries.task_filter(msgspec.json.decode(job.filter)))
        acts, pace = Acts(self._context, job), _Pace(job.rate)
        size = max(1, min(_PAGE_MAX, int(job.rate)))
        status: str | None = job.status
        while status == "running":
            page = await listing.page(
                self._db, where, job.place, size, finished=job.action == "retry", payloads=False
            )
            done, refused = await self._page(job, acts, pace, page.items)
            if self.stopping.is_set():
                await bulk.record(
                    self._db, job, self._now(), done=done, refused=refused, release=True
                )
                return
            job = job._replace(place=page.after)
            status = await bulk.record(
                self._db, job, self._now(), done=done, refused=refused,
                end="done" if page.after is None else None,
            )  # fmt: skip
            if not page.items:
                await self.pause(_BREATH_S)
        if status == "stopping":
            await bulk.record(self._db, job, self._now(), end="stopped")

    async def _page(
        self, job: Job, acts: Acts, pace: "_Pace", rows: list[TaskRow]
    ) -> tuple[int, int]:
        """Act on these tasks; answers how many were changed, and how many refused."""
        done = refused = 0
        rows = [row for row in rows if acts.concerns(row)]
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            if await self.pause(pace.wait_s(len(some))):
                break
            answers = await asyncio.gather(*map(acts.act, some), return_exceptions=True)
            done += answers.count(True)
            refused += answers.count(False)
            for answer in answers:
                if isinstance(answer, BaseException):
                    # What was done stays counted; the page is read anew from the same place.
                    await bulk.record(self._db, job, self._now(), done=done, refused=refused)
                    raise answer
        return done, refused

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


class _Pace:
    """Holds a job to its rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._clock = asyncio.get_running_loop().time
        self._free_at = self._clock()

    def wait_s(self, count: int) -> float:
        """How long to wait before so many tasks; what was not used before is not made up for."""
        now = self._clock()
        at = max(now, self._free_at)
        self._free_at = at + count / self._rate
        return at - now
