"""Reads what falls due in this node's slots into the wheel.

Three readers over the same index:

    pass     advances a cursor per slot up to the horizon, in pages, and stops while the wheel is
             full
    sweep    every 500 ms looks at whatever is due within the next 1.5 s, and reads what of it neither
             the wheel nor the dispatcher knows: it finds what a lost wake or a late commit left behind
             the cursors. Where sweeps take long, they come less often and look further ahead
    refill   brings the best of a queue that has more due than the dispatcher can hold, or of a
             concurrency key of it

Such a queue or key is *saturated*: pass and sweep read only what is due later of it, so that each of
its tasks is seen once, when it falls due, and takes part by its priority.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import anyio.lowlevel

from duly.actors.context import Context
from duly.actors.key_lot import KEPT
from duly.actors.lane import order_of
from duly.actors.messages import (
    Due,
    PrefetcherMessage,
    Refilled,
    Saturated,
    SaturatedKeys,
    Schedule,
    Sought,
    TurnedAway,
)
from duly.actors.patience import Patience
from duly.actors.ready import BROUGHT
from duly.actors.runtime import Actor, ActorCrashedError, Mailbox, MailboxClosedError, Reply
from duly.storage import slots, sweeps
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import BEGINNING, Best, Cursor, DueRow
from duly.storage.sweeps import Name
from duly.wheel.durations import from_us

log = logging.getLogger("duly.prefetcher")

_SWEEP_AHEAD_S = 1.0  # beyond the next sweep, so that no task falls due before it is read
_SWEEP_GROWS_S = 0.5  # from one sweep to the next: what has been looked at reaches beyond that
_SWEEP_BACK_S = 5.0  # of a long backlog, what every sweep looks at
_SWEEP_PAGES = 10
_NAME_PAGES = 1  # as long ones, or nearly all of a large backlog would be looked at each time
_SWEEP_SHARE = 5  # where it takes long, since much is due: a fifth of the time at most
_SWEEP_LATEST_S = 2.0
_PAGE = 2000
_NAMES = 30_000  # 24 bytes each; more than a queue holds in line
_BITE = 500
_FAIR_KEYS = 500  # that one refill brings; more are brought by turns
_ANSWER_S = 0.5
_FULL_S = 0.5  # between looks whether the wheel has room again

_Cursors = dict[int, Cursor]
R = TypeVar("R")


class Prefetcher(Actor[PrefetcherMessage]):
    """Keeps the wheel filled up to the horizon."""

    name = "prefetcher"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.prefetcher)
        self._context = context
        self._epochs: dict[int, int] = {}
        self._cursors: _Cursors = {}
        self._unfinished: set[int] = set()
        self._swept: _Cursors = {}  # how far, in slots with more than a page due
        self._saturated: frozenset[str] = frozenset()
        self._hungry: set[str] = set()
        self._saturated_keys: frozenset[tuple[str, str]] = frozenset()
        self._hungry_keys: set[tuple[str, str]] = set()
        self._fair_after: dict[str, str] = {}  # queue -> where its fairness keys go on
        self._patience = Patience("reading due tasks", log, context.vitals.postgres)
        self._next_sweep = 0.0
        self._sweep_every_s = context.options.sweep_every_s
        self._next_pass = 0.0
        self._retry_at = 0.0

    async def run(self) -> None:
        clock = self._context.clock
        while True:
            due_at = min(self._next_sweep, self._next_pass)
            if (self._hungry or self._hungry_keys) and self._cursors:
                due_at = 0.0
            wait_s = max(due_at, self._retry_at) - clock.monotonic()
            try:
                messages = await self.mailbox.receive_batch(64, wait_s)
            except MailboxClosedError:
                return
            for message in messages:
                self._take(message)
            self.mailbox.handled()
            if clock.monotonic() < self._retry_at:
                continue
            try:
                await self._read()
            except StoreUnavailableError as error:
                self._retry_at = clock.monotonic() + self._patience.failed(error)

    def _take(self, message: PrefetcherMessage) -> None:
        if isinstance(message, Saturated):
            self._saturated = message.queues
            self._hungry |= message.hungry
            return
        if isinstance(message, SaturatedKeys):
            self._saturated_keys = message.keys
            self._hungry_keys |= message.hungry
            return
        if isinstance(message, TurnedAway):
            self._go_back(message)
            return
        # A slot that was lost and taken again has a new epoch: others may have changed its tasks.
        known = self._epochs
        gained = {slot for slot, epoch in message.epochs.items() if known.get(slot) != epoch}
        self._epochs = dict(message.epochs)
        self._cursors = {
            slot: BEGINNING if slot in gained else self._cursors[slot] for slot in self._epochs
        }
        self._swept = {s: c for s, c in self._swept.items() if s in self._epochs.keys() - gained}
        self._unfinished &= set(self._epochs)
        if gained:
            self._unfinished |= gained
            self._next_pass = self._next_sweep = 0.0

    def _go_back(self, message: TurnedAway) -> None:
        """The pass reads from there again, as soon as the wheel has room."""
        for slot, since in message.since.items():
            cursor = Cursor(since, UUID(int=0))
            if slot in self._cursors and cursor < self._cursors[slot]:
                self._cursors[slot] = cursor
                self._unfinished.add(slot)
                self._next_pass = min(self._next_pass, self._context.clock.monotonic() + _FULL_S)

    async def _read(self) -> None:
        clock = self._context.clock
        if not self._cursors:
            self._patience.worked()  # without slots there is nothing that could fail
            self._next_sweep = self._next_pass = clock.monotonic() + 1.0
            return
        while self._hungry:
            await self._refill(min(self._hungry))
        while self._hungry_keys:
            await self._refill_key(*min(self._hungry_keys))
        if clock.monotonic() >= self._next_sweep:
            began = clock.monotonic()
            self._next_sweep = began + self._context.options.sweep_every_s
            with self._context.meters.reading("sweep"):
                await self._sweep()
            self._slow_down(clock.monotonic() - began)
            self._next_sweep = began + self._sweep_every_s
        if clock.monotonic() >= self._next_pass:
            with self._context.meters.reading("pass"):
                await self._advance()

    async def _refill(self, queue: str) -> None:
        """Straight to the dispatcher, since all of it is due: by priority, not through the wheel."""
        without = [key for its_queue, key in self._saturated_keys if its_queue == queue]
        now_us = self._certainly_due_us()
        with self._context.meters.reading("refill"):
            fair = await self._first_of_each(queue, now_us, without)
            best, last = await self._best(queue, from_us(now_us), without)
        await self._send(fair, now_us)
        refilled = Refilled(queue, best.complete, last=None if fair else last)
        await self._send(best.rows, now_us, refilled)
        self._hungry.discard(queue)

    async def _best(
        self, queue: str, now: datetime, without: list[str]
    ) -> tuple[Best, DueRow | None]:
        """The best of a queue, and the last one without a concurrency key, if more of these are in the store."""
        db, owned = self._context.db, list(self._cursors)
        best = others = await slots.due_best(db, owned, queue, now, BROUGHT, without)
        keyed = [row for row in best.rows if row.concurrency_key is not None]
        if keyed and not best.complete:
            # They may all wait for their keys here already: those without a key do not wait behind them.
            others = await slots.due_best(db, owned, queue, now, BROUGHT, None)
            best = Best(keyed + others.rows, complete=False)
        if not others.rows or others.complete:
            return best, None
        return best, max(others.rows, key=order_of)

    async def _first_of_each(self, queue: str, now_us: int, without: list[str]) -> list[DueRow]:
        """The best of each fairness key, and without one: the best of all may be those of one key."""
        db, owned = self._context.db, list(self._cursors)
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

    async def _refill_key(self, queue: str, key: str) -> None:
        db, owned, now_us = self._context.db, list(self._cursors), self._certainly_due_us()
        with self._context.meters.reading("refill"):
            rows = await slots.due_of_key(db, owned, queue, key, from_us(now_us), KEPT)
        await self._send(rows, now_us, Refilled(queue, complete=len(rows) < KEPT, key=key))
        self._hungry_keys.discard((queue, key))

    def _certainly_due_us(self) -> int:
        """What is due by this instant is due on the cluster's clock."""
        return self._context.clock.now_us() - self._context.clock.ahead_us

    async def _send(
        self, found: list[DueRow], now_us: int, refilled: Refilled | None = None
    ) -> None:
        self._patience.worked()
        rows = slots.ticked(found, now_us)
        box = self._context.boxes.dispatcher
        for at in range(0, len(rows), _BITE):
            await box.send(Due(rows[at : at + _BITE]))
            await anyio.lowlevel.checkpoint()
        if refilled is not None:
            await box.send(refilled)

    def _slow_down(self, took_s: float) -> None:
        """Sweep as often as such sweeps should come, but for what this one has not looked ahead."""
        latest_s = min(_SWEEP_LATEST_S, self._sweep_every_s + _SWEEP_GROWS_S)
        every_s = self._context.options.sweep_every_s
        self._sweep_every_s = max(every_s, min(_SWEEP_SHARE * took_s, latest_s))

    async def _sweep(self) -> None:
        """All that is due, one page of each slot. Where there is more, the rest of it next time.

        There, what has come due of late is looked at each time all the same.
        """
        now_us = self._context.clock.now_us()
        before = from_us(now_us + round((self._sweep_every_s + _SWEEP_AHEAD_S) * 1e6))
        lately = Cursor(from_us(now_us - round(_SWEEP_BACK_S * 1e6)), UUID(int=0))
        cursors = dict.fromkeys(self._cursors, BEGINNING)
        cursors |= {slot: cursor for slot, cursor in self._swept.items() if slot in cursors}
        more = await self._swept_page(cursors, before)
        self._swept = {slot: cursor for slot, cursor in more.items() if cursor < lately}
        cursors = {slot: max(cursor, lately) for slot, cursor in more.items()}
        pages = _SWEEP_PAGES if self._reads_rows else _NAME_PAGES
        for _ in range(pages):
            if not cursors:
                return
            cursors = await self._swept_page(cursors, before)

    @property
    def _reads_rows(self) -> bool:
        """Whether a sweep leaves out what is saturated; else it reads the names of all."""
        return bool(self._saturated or self._saturated_keys)

    async def _swept_page(self, cursors: _Cursors, before: datetime) -> _Cursors:
        """Pass on what of a page is not known; answers the cursors of the slots that have more.

        And note whether what is set of queues has changed, where that needs no statement of its own.
        """
        context = self._context
        if self._reads_rows:
            rows, more = await self._page(cursors, before)
            await self._pass_on(rows)
            return more
        asked_at = context.clock.monotonic()
        page = await sweeps.sweep(context.db, cursors, before, max(1, _NAMES // len(cursors)))
        self._patience.worked()
        if context.home is None:
            context.controls.check(page.controls, asked_at)
        names = await self._unknown(
            await self._unknown(page.names, context.boxes.ticker), context.boxes.dispatcher
        )
        await self._bring([name for some in names.values() for name in some])
        return page.more

    async def _bring(self, names: Sequence[Name]) -> None:
        """Read these and pass them on, the first ones first, in pages: so many at once would hold up the others."""
        found: list[DueRow] = []
        for at in range(0, len(names), _PAGE):
            found += await sweeps.pending(self._context.db, names[at : at + _PAGE])
        found.sort(key=lambda row: row.next_run_at)
        for at in range(0, len(found), _PAGE):
            some = found[at : at + _PAGE]
            await self._pass_on([row for row in some if row.slot in self._cursors])

    async def _unknown(
        self, names: Mapping[str, Sequence[Name]], box: Mailbox[Any]
    ) -> dict[str, list[Name]]:
        """Those of which this actor does not know. What the ticker has passed on is with the dispatcher by then."""
        if not names:
            return {}
        reply: Reply[dict[str, list[Name]]] = Reply()
        await box.send(Sought(names, reply))
        return await self._answer(reply) or {}

    async def _advance(self) -> None:
        """One page of the pass. Comes again at once until the horizon is reached."""
        options, clock = self._context.options, self._context.clock
        room = options.wheel_cap - self._context.vitals.wheel_entries
        if room <= 0:
            self._next_pass = clock.monotonic() + _FULL_S
            return
        if not self._unfinished:
            self._unfinished = set(self._cursors)  # the horizon has moved on
        before = from_us(clock.now_us() + round(options.horizon_s * 1e6))
        asked = {slot: self._cursors[slot] for slot in self._unfinished}
        rows, more = await self._page(asked, before, room)
        for row in rows:
            self._cursors[row.slot] = Cursor(row.next_run_at, row.id)
        self._cursors |= more  # which may be further, past what was left out
        await self._pass_on(rows)
        self._unfinished = set(more)
        # With more to come it goes on at once, after what the mailbox and the sweep have.
        self._next_pass = 0.0 if more else clock.monotonic() + options.horizon_s / 4

    async def _page(
        self, cursors: _Cursors, before: datetime, room: int = _PAGE
    ) -> tuple[list[DueRow], _Cursors]:
        """A page that fits into this room, and the cursors of the slots that have more."""
        per_slot = _per_slot(cursors, room)
        now = from_us(self._context.clock.now_us())
        without = sorted(self._saturated), sorted(self._saturated_keys)
        page = await slots.due(self._context.db, cursors, before, per_slot, *without, now)
        self._patience.worked()
        return page.rows, page.more

    async def _pass_on(self, rows: list[DueRow]) -> None:
        """Give rows to the wheel, at its pace."""
        if not rows:
            return
        reply: Reply[int] = Reply()
        await self._context.boxes.ticker.send(Schedule(rows, reply))
        await self._answer(reply)

    async def _answer(self, reply: Reply[R]) -> R | None:
        """None if there is none, since this actor or the other one stops."""
        while not self.stopping.is_set():
            try:
                return await reply.wait(_ANSWER_S)
            except TimeoutError:
                continue
            except ActorCrashedError:
                break  # its restart takes us along
        return None


def _per_slot(cursors: _Cursors, room: int) -> int:
    return max(1, min(max(_PAGE, 4 * len(cursors)), room) // len(cursors))
