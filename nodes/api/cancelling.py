"""Cancelling a task: in PostgreSQL, which decides, and then in Redis, so that its worker hears of it."""

import logging
from uuid import UUID

import msgspec

from duly.actors import wakes
from duly.actors.cancelling import cancel
from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.storage import tasks
from duly.storage.audit import Note
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.api")


class Cancelling:
    """Works on the API's own connections."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._redis = Patience("telling workers of cancellations", log)

    async def cancel(
        self, task_id: UUID, noted: Note, only: tasks.Only | None = None
    ) -> tasks.Cancelled | None:
        """Cancel a pending or running task (`only`: while it is so); None if there is none by that id."""
        done = await cancel(self._context.api_db, self._context.clock, task_id, noted, only)
        if done is None:
            return None
        await wakes.freed(self._context, [(done.row.queue, done.row.concurrency_key)])
        self._context.feed.tell("cancelled", [task_id])
        # Pending again after an attempt, that attempt's entry may not be cleaned up yet, or a worker
        # that was given up may come back with it. What was never claimed is nowhere.
        if done.token > 0:
            await self._fence_off(done)
        return done

    async def _fence_off(self, done: tasks.Cancelled) -> None:
        streams, row = self._context.streams, done.row
        try:
            holder = await streams.supersede(row.queue, row.id, row.version)
            if holder is not None:
                message = {"cancel": str(row.id), "token": done.token}
                await streams.signals.tell_worker(holder, msgspec.json.encode(message))
        except TROUBLE as error:
            # The cancel stands: whatever the worker reports is stale.
            self._redis.failed(error)
        else:
            self._redis.worked()
