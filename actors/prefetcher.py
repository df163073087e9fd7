"""Reads what falls due in this node's slots into the wheel.

Three readers over the same index:

    pass     advances a cursor per slot up to the horizon, in pages, and stops while the wheel is
             full
    sweep    every 500 ms looks at whatever is due within the next 1.5 s, and reads what of it neither
             the wheel nor the dispatcher knows: it finds what a lost wake or a late commit left behind
             the cursors. Where sweeps take long, they come less often and look further ahead
    refill   brings the best of a queue that has more due than the dispatcher can hold, or of a
             concurrency key of it (see `refills`); it does not wait for the others, since workers may wait for it

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
from duly.actors.messages import (
    Ownership,
    PrefetcherMessage,
    Saturated,
    SaturatedKeys,
    Schedule,
    Sought,
)
from duly.actors.patience import Patience
from duly.actors.refills import Refills
from duly.actors.runtime import Actor, ActorCrashedError, Mailbox, MailboxClosedError, Reply
from duly.storage import slots, sweeps
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import BEGINNING, Cursor, DueRow
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
        self._refills = Refills(context)
        self._ownership = Ownership({}, 0.0)  # as last told; taken between two reads, as this is:
        self._turned_away: dict[int, datetime] = {}
        self._news = anyio.Event()
        self._patience = Patience("reading due tasks", log, context.vitals.postgres)
        self._patience_to_refill = Patience("bringing due tasks", log, context.vitals.postgres)
        self._refill_at = 0.0
        self._next_sweep = 0.0
        self._sweep_every_s = context.options.sweep_every_s
        self._next_pass = 0.0
        self._retry_at = 0.0

    async def run(self) -> None:
        async with anyio.create_task_group() as reading:
            reading.start_soon(self._keep_reading)
            await self._keep_refilling()
            reading.cancel_scope.cancel()

    async def _keep_refilling(self) -> None:
        """Until the mailbox is closed. What others have to say is left to those who read."""
        clock = self._context.clock
        while True:
            wait_s = self._refill_at - clock.monotonic() if self._can_refill else None
            try:
                messages = await self.mailbox.receive_batch(64, wait_s)
            except MailboxClosedError:
                return
            for message in messages:
                self._hear(message)
            self.mailbox.handled()
            if not self._can_refill or clock.monotonic() < self._refill_at:
                continue
            try:
                await self._refills.bring_one(list(self._ownership.epochs))
                self._patience_to_refill.worked()
            except StoreUnavailableError as error:
                self._refill_at = clock.monotonic() + self._patience_to_refill.failed(error)

    @property
    def _can_refill(self) -> bool:
        return self._refills.wanted and bool(self._ownership.epochs)

    def _hear(self, message: PrefetcherMessage) -> None:
        if isinstance(message, Saturated | SaturatedKeys):
            self._refills.note(message)
            return
        if isinstance(message, Ownership):
            self._ownership = message
        else:
            for slot, since in message.since.items():
                self._turned_away[slot] = min(since, self._turned_away.get(slot, since))
        self._news.set()

    async def _keep_reading(self) -> None:
        clock = self._context.clock
        while True:
            self._take(self._ownership)
            self._go_back()
            if clock.monotonic() >= self._retry_at:
                try:
                    await self._read()
                except StoreUnavailableError as error:
                    self._retry_at = clock.monotonic() + self._patience.failed(error)
            due_at = max(min(self._next_sweep, self._next_pass), self._retry_at)
            await self._wait_for_news(due_at - clock.monotonic())

    async def _wait_for_news(self, within_s: float) -> None:
        if within_s > 0:
            with anyio.move_on_after(within_s):
                await self._news.wait()
        self._news = anyio.Event()
        await anyio.lowlevel.checkpoint()

    def _take(self, message: Ownership) -> None:
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

    def _go_back(self) -> None:
        """The pass reads what was turned away again, as soon as the wheel has room."""
        turned_away, self._turned_away = self._turned_away, {}
        for slot, since in turned_away.items():
            cursor = Cursor(since, UUID(int=0))
            if slot in self._cursors and cursor < self._cursors[slot]:
                self._cursors[slot] = cursor
                self._unfinished.add(slot)
                self._next_pass = min(self._next_pass, self._context.clock.monotonic() + _FULL_S)

    async def _read(self) -> None:
        clock = self._context.clock
        if not self._cursors:
            self._patience.worked()  # without slots there is nothing that could fail
            self._patience_to_refill.worked()
            self._next_sweep = self._next_pass = clock.monotonic() + 1.0
            return
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
        return bool(self._refills.queues or self._refills.keys)

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
        without = sorted(self._refills.queues), sorted(self._refills.keys)
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
