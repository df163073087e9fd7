"""Carries out jobs, one at a time: takes over any whose node is gone, and goes on where that one was.

A page of tasks is read and acted on, a few at a time; how far that came is recorded after the page, and every few
seconds. A node that is not the owner any more hears so from that, and lets go. What was acted on and not recorded
is acted on again: that changes nothing, since each change depends on the state of its task.
"""

import asyncio
import logging
import random
from datetime import datetime, timedelta
from typing import NamedTuple, NoReturn
from uuid import UUID

import anyio
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

_LOOK_EVERY_S = (
    5.0  # for those whose node is gone, or busy; a node hears of those that were added to it
)
_DEAD_S = 15.0
"""An owner that has recorded nothing for so long is gone."""
_PAGE_MAX = 100
_AT_ONCE = 4
_TELL_EVERY_S = 5.0  # of a page that takes long: well within the time after which an owner is gone
_BREATH_S = 0.02  # after a page without any task that fits


class BulkRunner(Actor[NoReturn]):
    """Looks for work when some was added here, and every few seconds."""

    name = "bulk"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("bulk", 1))
        self._context = context
        self._db = context.api_db
        self._patience = Patience("carrying out bulk actions", log)

    async def run(self) -> None:
        wait_s = _LOOK_EVERY_S
        while not await self._wait(wait_s * random.uniform(0.8, 1.2)):
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

    async def _wait(self, seconds: float) -> bool:
        """Until it is time to look, or something was added; answers whether a stop has begun."""
        with anyio.move_on_after(seconds):
            await self._context.bulk_news.wait()
        self._context.bulk_news.clear()
        return self.stopping.is_set()

    def request_stop(self) -> None:
        super().request_stop()
        self._context.bulk_news.set()

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
        acts, pace = Acts(self._context, job, where), _Pace(job.rate)
        size = max(1, min(_PAGE_MAX, int(job.rate)))
        status: str | None = job.status
        while status == "running":
            page = await listing.page(
                self._db, where, job.place, size, finished=job.action == "retry", payloads=False
            )
            acted = await self._page(job, acts, pace, page.items)
            job = job._replace(place=page.after if acted.whole else acted.place)
            is_end, stops = acted.whole and page.after is None, self.stopping.is_set()
            status = await bulk.record(
                self._db, job, self._now(), done=acted.done, refused=acted.refused,
                end="done" if is_end else None, release=stops,
            )  # fmt: skip
            if stops:
                return
            if not page.items:
                await self.pause(_BREATH_S)
        if status == "stopping":
            await bulk.record(self._db, job, self._now(), end="stopped")

    async def _page(self, job: Job, acts: Acts, pace: "_Pace", rows: list[TaskRow]) -> "_Acted":
        """Act on these tasks, or on some: the node stops, or it is time to record how far it came."""
        loop, acted = asyncio.get_running_loop(), _Acted(job.place)
        rows = [row for row in rows if acts.concerns(row)]
        tell_at = loop.time() + _TELL_EVERY_S
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            wait_s, tell_in_s = pace.wait_s(), tell_at - loop.time()
            # Known beforehand: a timer may end a little early, and then their turn has not come.
            tells_first = tell_in_s <= wait_s
            if await self.pause(max(0.0, min(wait_s, tell_in_s))) or tells_first:
                return acted
            pace.took(len(some))
            answers = await asyncio.gather(*map(acts.act, some), return_exceptions=True)
            acted = _Acted(
                some[-1].id, acted.done + answers.count(True), acted.refused + answers.count(False)
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    # What was done stays counted; these few are read anew.
                    at = job._replace(place=rows[first - 1].id) if first else job
                    await bulk.record(
                        self._db, at, self._now(), done=acted.done, refused=acted.refused
                    )
                    raise answer
        return acted._replace(whole=True)

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


class _Acted(NamedTuple):
    """How far a page came, how many were changed and how many refused."""

    place: UUID | None
    done: int = 0
    refused: int = 0
    whole: bool = False


class _Pace:
    """Holds a job to its rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._clock = asyncio.get_running_loop().time
        self._free_at = self._clock()

    def wait_s(self) -> float:
        """How long to wait before the next tasks."""
        return max(0.0, self._free_at - self._clock())

    def took(self, count: int) -> None:
        """So many have their turn; time that was not used before is not made up for."""
        self._free_at = max(self._clock(), self._free_at) + count / self._rate
