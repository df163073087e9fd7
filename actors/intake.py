"""Reads due rows of this node's slots, and passes them on to the wheel at its pace."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import anyio

from duly.actors.context import Context
from duly.actors.messages import Schedule, Sought
from duly.actors.patience import Patience
from duly.actors.refills import Refills
from duly.actors.runtime import ActorCrashedError, Mailbox, Reply
from duly.storage import slots
from duly.storage.slots import Cursor, DuePage, DueRow
from duly.storage.sweeps import Name
from duly.wheel.durations import from_us

PAGE = 2000
"""Rows that are read, or passed on, at once."""

_ANSWER_S = 0.5

R = TypeVar("R")


class Intake:
    """What pass and sweep have in common. Of what is saturated (see `refills`) it reads only what is due later."""

    def __init__(
        self, context: Context, refills: Refills, patience: Patience, stopping: anyio.Event
    ) -> None:
        self.patience = patience
        self._context = context
        self._refills = refills
        self._stopping = stopping

    async def page(
        self, cursors: dict[int, Cursor], before: datetime, room: int | None = None
    ) -> DuePage:
        """A page that fits into this room (default: `PAGE` rows)."""
        per_slot = _per_slot(cursors, PAGE if room is None else room)
        now = from_us(self._context.clock.now_us())
        without = sorted(self._refills.queues), sorted(self._refills.keys)
        page = await slots.due(self._context.db, cursors, before, per_slot, *without, now)
        self.patience.worked()
        return page

    async def pass_on(self, rows: list[DueRow]) -> None:
        """Give rows to the wheel, at its pace."""
        if not rows:
            return
        reply: Reply[int] = Reply()
        await self._context.boxes.ticker.send(Schedule(rows, reply))
        await self._answer(reply)

    async def unknown(
        self, names: Mapping[str, Sequence[Name]], box: Mailbox[Any]
    ) -> dict[str, list[Name]]:
        """Those of which this actor does not know. What the ticker has passed on is with the dispatcher by then."""
        if not names:
            return {}
        reply: Reply[dict[str, list[Name]]] = Reply()
        await box.send(Sought(names, reply))
        return await self._answer(reply) or {}

    async def _answer(self, reply: Reply[R]) -> R | None:
        """None if there is none, since this actor or the other one stops."""
        while not self._stopping.is_set():
            try:
                return await reply.wait(_ANSWER_S)
            except TimeoutError:
                continue
            except ActorCrashedError:
                break  # its restart takes us along
        return None


def _per_slot(cursors: dict[int, Cursor], room: int) -> int:
    return max(1, min(max(PAGE, 4 * len(cursors)), room) // len(cursors))
