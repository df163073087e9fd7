"""Takes slots back whose move was broken off within its fence: then no node of either store works on them.

It looks only while there are slots that no store holds, so that it costs nothing otherwise. Every node does it:
what the first has settled, the others find settled.
"""

import logging
from typing import NoReturn
from uuid import UUID

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import fences
from duly.storage.errors import StoreUnavailableError
from duly.storage.layout import Layout, ranges
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.stores")

_EVERY_S = 1.0

_LONGEST_S = 4.0  # on top of it, if it fails: the slots wait


class FenceKeeper(Actor[NoReturn]):
    """Of the slots on their way from one store."""

    name = "fences"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("fences", 1))
        assert context.layout is not None
        self._context = context
        self._layout: Layout = context.layout
        what = f"taking back slots that were on their way from {self._layout.names[context.store]}"
        self._patience = Patience(what, log, longest_s=_LONGEST_S)
        self._beyond: set[UUID] = set()
        """Fences that only a store that is not configured here can end."""

    async def run(self) -> None:
        wait_s = 0.0
        while not await self.pause(_EVERY_S + wait_s):
            wait_s = await self._look() if self._layout.unknown else 0.0

    async def _look(self) -> float:
        """End what is over; return how long to wait beyond the usual, in seconds."""
        failure: Exception | None = None
        try:
            found = await fences.over(self._context.db)
        except StoreUnavailableError as error:
            return self._patience.failed(error)
        self._beyond.intersection_update(fence.fence for fence in found)
        for fence in found:
            if fence.state == "handing" and fence.to >= len(self._context.stores):
                self._tell(fence)
                continue
            try:
                await self._settle(fence)
            except (StoreUnavailableError, *TROUBLE) as error:
                failure = failure or error
        if failure is not None:
            return self._patience.failed(failure)
        self._patience.worked()
        return 0.0

    async def _settle(self, fence: fences.Fence) -> None:
        context = self._context
        store = await fences.settle(context.stores, context.store, fence)
        if store is None:
            return
        log.warning(
            "nobody has ended the move of slots %s in time: they are in %s",
            ranges(fence.slots),
            self._layout.names[store],
        )
        await context.members.announce()

    def _tell(self, fence: fences.Fence) -> None:
        if fence.fence in self._beyond:
            return
        self._beyond.add(fence.fence)
        log.error(
            "slots %s wait: only store %d, which database_urls does not name here, knows whether it has taken them",
            ranges(fence.slots),
            fence.to,
        )
