"""Brings the best of what the store has due, where it has more than the dispatcher holds.

Of a queue, or of one concurrency key of it: the dispatcher tells which of them are *saturated*, and which of those
are *hungry*.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import anyio.lowlevel

from duly.actors.context import Context
from duly.actors.floors import Floors
from duly.actors.key_lot import KEPT
from duly.actors.lane import order_of
from duly.actors.messages import Due, Refilled, Saturated, SaturatedKeys
from duly.actors.ready import BROUGHT
from duly.storage import slots
from duly.storage.slots import Best, DueRow
from duly.wheel.durations import from_us

_BITE = 500
_FAIR_KEYS = 500  # that one refill brings; more are brought by turns


class Refills:
    """What is saturated, and what of it is to be brought."""

    def __init__(self, context: Context) -> None:
        self.queues: frozenset[str] = frozenset()
        """Those that are saturated."""
        self.keys: frozenset[tuple[str, str]] = frozenset()
        """(queue, concurrency key): the same of keys."""
        self._context = context
        self._floors = Floors(context.clock.monotonic)
        self._hungry: dict[
            tuple[str, str | None], None
        ] = {}  # queue and, of a key, this; as they came
        self._fair_after: dict[str, str] = {}  # queue -> where its fairness keys go on

    @property
    def wanted(self) -> bool:
        """Whether there is something to bring."""
        return bool(self._hungry)

    def note(self, message: Saturated | SaturatedKeys) -> None:
        """What the dispatcher tells."""
        hungry: Iterable[tuple[str, str | None]]
        if isinstance(message, Saturated):
            self.queues = message.queues
            hungry = [(queue, None) for queue in sorted(message.hungry)]
        else:
            self.keys = message.keys
            hungry = sorted(message.hungry)
        self._hungry |= dict.fromkeys(hungry)

    def gained(self) -> None:
        """Slots were gained."""
        self._floors.clear()

    async def bring_one(self, owned: Sequence[int]) -> None:
        """What the first of the hungry ones is to have, of these slots. It stays the first if that fails."""
        first = queue, key = next(iter(self._hungry))
        if key is None:
            await self.bring(queue, owned)
        else:
            await self._bring_key(queue, key, owned)
        del self._hungry[first]

    async def bring(self, queue: str, owned: Sequence[int]) -> None:
        """Straight to the dispatcher, since all of it is due: by priority, not through the wheel."""
        without = [key for its_queue, key in self.keys if its_queue == queue]
        now_us = self._certainly_due_us()
        with self._context.meters.reading("refill"):
            fair = await self._first_of_each(queue, owned, now_us, without)
            best, last = await self._best(queue, owned, from_us(now_us), without)
        await self._send(fair, now_us)
        end = Refilled(queue, best.complete, None, None if fair else last, now_us)
        await self._send(best.rows, now_us, end)

    async def _best(
        self, queue: str, owned: Sequence[int], now: datetime, without: list[str]
    ) -> tuple[Best, DueRow | None]:
        """The best of a queue, and the last one without a concurrency key, if more of these are in the store."""
        db, monotonic = self._context.db, self._context.clock.monotonic
        since, began = self._floors.of(queue, without), monotonic()
        best = others = await slots.due_best(db, owned, queue, now, BROUGHT, without, since)
        if best.complete and since is not None:
            # That there is no more is told only of all of it.
            since, began = None, monotonic()
            best = others = await slots.due_best(db, owned, queue, now, BROUGHT, without)
        self._floors.read(queue, without, best.rows, since, monotonic() - began)
        keyed = [row for row in best.rows if row.concurrency_key is not None]
        if keyed and not best.complete:
            # They may all wait for their keys here already: those without a key do not wait behind them.
            others = await slots.due_best(db, owned, queue, now, BROUGHT, None, since)
            best = Best(keyed + others.rows, complete=False)
        if not others.rows or others.complete:
            return best, None
        return best, max(others.rows, key=order_of)

    async def _first_of_each(
        self, queue: str, owned: Sequence[int], now_us: int, without: list[str]
    ) -> list[DueRow]:
        """The best of each fairness key, and without one: the best of all may be those of one key."""
        db = self._context.db
        keys = await slots.fair_keys(db, queue, self._fair_after.pop(queue, ""), _FAIR_KEYS)
        if not keys:
            return []
        if len(keys) == _FAIR_KEYS:
            self._fair_after[queue] = keys[-1]  # those after it come with the next refill
        each = BROUGHT // (len(keys) + 1)
        now = from_us(now_us)
        rows = await slots.due_fair(db, owned, queue, keys, now, each, without)
        unfair = await slots.due_best(db, owned, queue, now, each, without, unfair=True)
        return rows + unfair.rows

    async def _bring_key(self, queue: str, key: str, owned: Sequence[int]) -> None:
        db, now_us = self._context.db, self._certainly_due_us()
        with self._context.meters.reading("refill"):
            rows = await slots.due_of_key(db, owned, queue, key, from_us(now_us), KEPT)
        await self._send(rows, now_us, Refilled(queue, complete=len(rows) < KEPT, key=key))

    def _certainly_due_us(self) -> int:
        """What is due by this instant is due on the cluster's clock."""
        return self._context.clock.now_us() - self._context.clock.ahead_us

    async def _send(
        self, found: list[DueRow], now_us: int, refilled: Refilled | None = None
    ) -> None:
        rows = slots.ticked(found, now_us)
        box = self._context.boxes.dispatcher
        for at in range(0, len(rows), _BITE):
            await box.send(Due(rows[at : at + _BITE], brought=True))
            await anyio.lowlevel.checkpoint()
        if refilled is not None:
            await box.send(refilled)
