"""Actions on all tasks that a filter finds, of several stores: a job is in each of them, under one id.

Each store's part is carried out by its own nodes at its share of the rate. What is told of a job is the sum.
"""

import asyncio
import builtins
import logging
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from duly.actors.context import Context
from duly.nodes.api.bulk import BulkHandlers
from duly.nodes.api.stores import lists
from duly.nodes.api.stores.routing import Stores
from duly.storage import bulk, matches
from duly.storage.audit import Note
from duly.storage.bulk import Job, NewJob
from duly.storage.errors import StoreUnavailableError
from duly.storage.listing import Filter
from duly.storage.tasks import TaskRow

log = logging.getLogger("duly.api")

_ORDER = ("failed", "running", "stopping", "stopped", "done")


class StoresBulkHandlers(BulkHandlers):
    """Jobs of all stores."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._stores = stores

    async def _count(self, where: Filter, until: datetime, *, finished: bool) -> matches.Matches:
        async def ask(context: Context) -> matches.Matches:
            return await matches.count(context.api_db, where, until, finished=finished)

        found = await lists.of_each(self._stores, ask)
        return matches.Matches(sum(one.total for one in found), all(one.exact for one in found))

    async def _sample(self, where: Filter, limit: int, *, finished: bool) -> builtins.list[TaskRow]:
        page = await lists.page(self._stores, where, None, limit, finished=finished)
        return page.items

    async def _add(self, job: NewJob, forget_before: datetime, now: datetime, noted: Note) -> Job:
        """Goes on to its end, whatever becomes of the caller: a job is in all stores, or stopped in each."""
        return await asyncio.shield(self._add_to_all(job, forget_before, now, noted))

    def _wake_runners(self) -> None:
        for context in self._stores.contexts:
            context.bulk_news.set()

    async def _add_to_all(
        self, job: NewJob, forget_before: datetime, now: datetime, noted: Note
    ) -> Job:
        """The first store last: what was added without it is stopped."""
        share = job._replace(rate=job.rate / len(self._stores.contexts), total=0)
        first, *others = self._stores.contexts
        try:
            for context in others:
                await bulk.add(context.api_db, share, forget_before, now, None)
            own = share._replace(total=job.total)
            added = await bulk.add(first.api_db, own, forget_before, now, noted)
        except StoreUnavailableError as error:
            # What is still under way may add it after it was stopped.
            with suppress(StoreUnavailableError):
                await error.settled()
            for context in self._stores.contexts:
                try:
                    await bulk.stop(context.api_db, job.id, now, None)
                except StoreUnavailableError as trouble:
                    log.warning(
                        "bulk action %s may go on in store %d: %s", job.id, context.store, trouble
                    )
            raise
        return added._replace(rate=job.rate)

    async def _jobs(self, after: tuple[datetime, UUID] | None, limit: int) -> builtins.list[Job]:
        jobs = await bulk.jobs(self._stores.contexts[0].api_db, after, limit)
        found = [await self._get(job.id) for job in jobs]
        return [job for job in found if job is not None]

    async def _get(self, job_id: UUID) -> Job | None:
        found = await lists.of_each(self._stores, lambda one: bulk.get(one.api_db, job_id))
        parts = [one for one in found if one is not None]
        return _sum(parts) if parts else None

    async def _stop(self, job_id: UUID, now: datetime, noted: Note) -> Job | None:
        first, *others = self._stores.contexts
        for context in others:
            await bulk.stop(context.api_db, job_id, now, None)
        await bulk.stop(first.api_db, job_id, now, noted)
        job = await self._get(job_id)
        return job if job is not None and job.finished_at is None else None


def _sum(parts: list[Job]) -> Job:
    ends = [part.finished_at for part in parts]
    over = [end for end in ends if end is not None]
    status = min((part.status for part in parts), key=_ORDER.index)
    if len(over) < len(parts) and status == "failed":
        status = "running"  # in another store it goes on
    return parts[0]._replace(
        status=status,
        rate=sum(part.rate for part in parts),
        total=sum(part.total for part in parts),
        done=sum(part.done for part in parts),
        refused=sum(part.refused for part in parts),
        updated_at=max(part.updated_at for part in parts),
        finished_at=max(over) if len(over) == len(parts) else None,
        error=next((part.error for part in parts if part.error), None),
    )
