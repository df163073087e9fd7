"""Measures the cluster's clock: PostgreSQL's, seen over the network."""

import logging
from typing import NoReturn

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import upkeep
from duly.storage.errors import StoreUnavailableError
from duly.wheel.durations import to_us

log = logging.getLogger("duly.clock")

_FIRST_SAMPLES = 5
_EVERY_S = 15.0


class ClockActor(Actor[NoReturn]):
    """Feeds samples to the context's clock; the node starts when the first one is in."""

    name = "clock"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("clock", 1))
        self._context = context
        self._patience = Patience("reading PostgreSQL's clock", log, context.vitals.postgres)

    async def started(self) -> None:
        while not await self._sample(_FIRST_SAMPLES):
            pass

    async def run(self) -> None:
        while not await self.pause(_EVERY_S):
            await self._sample(2)

    async def _sample(self, count: int) -> bool:
        clock = self._context.clock
        try:
            for _ in range(count):
                sent = clock.monotonic()
                answer = await upkeep.server_time(self._context.api_db)
                if (
                    self._context.store == 0 or not clock.synced
                ):  # of several, the first one's counts
                    clock.observe(sent, clock.monotonic(), to_us(answer))
        except StoreUnavailableError as error:
            await self.pause(self._patience.failed(error))
            return False
        self._patience.worked()
        return True
