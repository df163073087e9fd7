"""Takes slots back whose move was broken off within its fence: then no node of either store works on them.

It looks only while there are slots that no store holds, so that it costs nothing otherwise. Every node does it:
what the first has settled, the others find settled.
"""

import logging
from typing import NoReturn

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import fences
from duly.storage.errors import StoreUnavailableError
from duly.storage.layout import ranges
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.stores")

_EVERY_S = 1.0


class FenceKeeper(Actor[NoReturn]):
    """Of the slots on their way from one store."""

    name = "fences"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("fences", 1))
        self._context = context
        self._patience = Patience("taking back slots that were on their way to another store", log)

    async def run(self) -> None:
        layout = self._context.layout
        assert layout is not None
        while not await self.pause(_EVERY_S):
            if not layout.unknown:
                continue
            try:
                for fence in await fences.over(self._context.db):
                    await self._settle(fence)
                self._patience.worked()
            except (StoreUnavailableError, *TROUBLE) as error:
                self._patience.failed(error)

    async def _settle(self, fence: fences.Fence) -> None:
        context = self._context
        moved = await fences.settle(context.db, context.stores[fence.to], fence)
        log.warning(
            "nobody has ended the move of slots %s in time: they are in store %d",
            ranges(fence.slots),
            fence.to if moved else context.store,
        )
        await context.members.announce()
