"""Keeps the store and Redis from growing: partitions ahead, retention behind, leftovers out."""

import logging
from datetime import datetime, timedelta
from typing import NoReturn
from uuid import UUID

from redis.exceptions import ResponseError

from duly.actors.context import Context
from duly.actors.outcomes import is_token
from duly.actors.patience import Patience
from duly.actors.retention import Retention
from duly.actors.rezoning import rezone
from duly.actors.runtime import Actor, Mailbox
from duly.storage import alerts, slots, upkeep
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.wheel.durations import from_us

log = logging.getLogger("duly.upkeep")

_EVERY_S = 600.0
_FORGET_IDLE_MS = 600_000


class Upkeep(Actor[NoReturn]):
    """The day's partitions are there before anything is recorded."""

    name = "upkeep"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("upkeep", 1))
        self._context = context
        self._patience = Patience("upkeep", log)
        self._retention = Retention(context)

    async def started(self) -> None:
        while True:
            try:
                await self._partitions()
                return
            except StoreUnavailableError as error:
                await self.pause(self._patience.failed(error))

    async def run(self) -> None:
        wait_s = _EVERY_S / 10
        while not await self.pause(wait_s):
            try:
                await self._partitions()
                await self._expire()
                await self._retention.drop(self._cutoff(), self.pause)
                await rezone(self._context)
                for queue in await self._context.streams.queues.names():
                    await self._sweep(queue)
                self._patience.worked()
                wait_s = _EVERY_S
            except (*TROUBLE, StoreUnavailableError) as error:
                wait_s = 10 * self._patience.failed(error)

    def _cutoff(self) -> datetime:
        """What is older has had its time."""
        context = self._context
        return from_us(context.clock.now_us()) - timedelta(seconds=context.options.retention_s)

    async def _partitions(self) -> None:
        today = from_us(self._context.clock.now_us()).date()
        # With a retention of less than a day yesterday's is not made again after it was dropped.
        if not await upkeep.make_partitions(self._context.db, today, oldest=self._cutoff().date()):
            log.warning(
                "some day partitions cannot be made now, their rows go to the default one: trying on"
            )

    async def _expire(self) -> None:
        now = from_us(self._context.clock.now_us())
        while await upkeep.expire_keys(self._context.db, now) and not self.stopping.is_set():
            pass
        while await alerts.forget(self._context.db, self._cutoff()) and not self.stopping.is_set():
            pass

    async def _sweep(self, queue: str) -> None:
        try:
            await self._sweep_inflight(queue)
            await self._context.streams.drop_entries(queue)
            await self._context.streams.reports.forget_nodes(queue, _FORGET_IDLE_MS)
        except ResponseError as error:
            if not is_of_one_queue(error):
                raise
            log.warning("cannot tidy up queue %s: %s", queue, error)  # again in ten minutes

    async def _sweep_inflight(self, queue: str) -> None:
        """Forget what a crash or a cancel left in the in-flight hash."""
        streams, cursor = self._context.streams, 0
        while True:
            cursor, pairs = await streams.inflight_page(queue, cursor)
            known = {
                task_id: token
                for task_id, token in pairs
                if _is_ours(task_id, token) and self._context.holds(UUID(task_id))
            }
            running = await slots.tokens(self._context.db, [UUID(task_id) for task_id in known])
            left = [
                (b"", task_id, token)
                for task_id, token in known.items()
                if str(running.get(UUID(task_id), -1)) != token
                # Claimed a moment ago, by a statement newer than this read.
                and int(token) <= running.get(UUID(task_id), int(token))
            ]
            if left:
                await streams.settle(queue, left)
            if cursor == 0:
                return


def _is_ours(task_id: str, token: str) -> bool:
    try:
        UUID(task_id)
    except ValueError:
        return False
    return is_token(token)
