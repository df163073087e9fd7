"""Writes the node's figures to Redis every few seconds, and looks how late the event loop is."""

import logging
from typing import NoReturn

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import counting
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us

log = logging.getLogger("duly.statistics")

_FLUSH_EVERY_S = 5.0
_COUNT_EVERY_S = 10.0
_COUNT_S = 0.05
_COUNT_SHARE = 20  # where it takes long all the same (see `turns`), a twentieth of the time


class StatisticsActor(Actor[NoReturn]):
    """What a node that is killed had not written, five seconds at most, is missing in the figures."""

    name = "statistics"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("statistics", 1))
        self._context = context
        self._meters = context.meters
        self._redis = Patience("writing statistics", log)
        self._postgres = Patience("counting due tasks", log)
        self._flush_at = 0.0
        self._count_at = 0.0

    async def run(self) -> None:
        clock, pulse_s = self._context.clock, self._context.options.pulse_s
        while True:
            asked = clock.monotonic()
            if await self.pause(pulse_s):
                return
            late_us = round((clock.monotonic() - asked - pulse_s) * 1e6)
            self._meters.loop_delay.add((late_us,))
            # Often, so that what happened is counted to the minute in which it did.
            self._meters.fold(clock.now_us())
            if clock.monotonic() >= self._count_at:
                began = clock.monotonic()
                await self._count_due()
                took_s = clock.monotonic() - began
                self._count_at = began + max(_COUNT_EVERY_S, _COUNT_SHARE * took_s)
            if clock.monotonic() >= self._flush_at:
                self._flush_at = clock.monotonic() + _FLUSH_EVERY_S
                await self._flush()

    async def stopped(self) -> None:
        """The last figures, if Redis takes them."""
        self._meters.fold(self._context.clock.now_us())
        await self._flush()

    async def _flush(self) -> None:
        meters = self._meters
        for minute in sorted(meters.unsaved & meters.minutes.keys()):
            figures = meters.minutes[minute]
            meters.unsaved.discard(minute)
            try:
                await self._context.statistics.write(minute, figures.encode())
            except TROUBLE as error:
                meters.unsaved.add(minute)
                self._redis.failed(error)
                return
            self._redis.worked()

    async def _count_due(self) -> None:
        """Of this node's slots: over all nodes they add up to what waits in the cluster."""
        context, now_us = self._context, self._context.clock.now_us()
        owned = sorted(context.vitals.slots)
        try:
            count = await counting.due(
                context.db, owned, from_us(now_us), _COUNT_S, context.clock.monotonic
            )
        except StoreUnavailableError as error:
            self._postgres.failed(error)
        else:
            self._postgres.worked()
            self._meters.due(count, now_us)
