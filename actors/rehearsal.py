"""Once at the start: opens the connections that a burst of due tasks wants, so that the first one does not wait for them.

A connection takes PostgreSQL and the node 10 to 20 ms of processor time until it has run its first claim.
"""

import logging

from duly.actors.context import Context
from duly.actors.runtime import Actor, Mailbox
from duly.storage.errors import StoreUnavailableError
from duly.storage.rehearsal import rehearse
from duly.wheel.durations import from_us

log = logging.getLogger("duly.rehearsal")

_AT_ONCE = 6
"""Claims and completions that a node has under way at once (`dispatcher`, `recorder`)."""


class Rehearsal(Actor[None]):
    """Nothing waits for it; if the store is away, the connections are opened when they are needed."""

    name = "rehearsal"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox(self.name, 1))
        self._context = context

    async def run(self) -> None:
        times = min(_AT_ONCE, self._context.db.size)
        try:
            await rehearse(self._context.db, times, from_us(self._context.clock.now_us()))
        except* StoreUnavailableError as group:
            log.debug("no connections opened ahead: %s", group.exceptions[0])
        await self.stopping.wait()
