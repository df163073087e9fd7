"""Reads what falls due in this node's slots into the wheel.

Three readers over the same index:

    pass     advances a cursor per slot up to the horizon, in pages, and stops while the wheel is
             full
    sweep    every 500 ms looks at whatever is due within the next 1.5 s, and reads what of it neither
             the wheel nor the dispatcher knows: it finds what a lost wake or a late commit left behind
             the cursors (see `sweeping`). Where sweeps take long, they come less often and look further ahead
    refill   brings the best of a queue that has more due than the dispatcher can hold, or of a
             concurrency key of it (see `refills`); it does not wait for the others, since workers may wait for it

Such a queue or key is *saturated*: pass and sweep read only what is due later of it, so that each of
its tasks is seen once, when it falls due, and takes part by its priority.
"""

import logging
from datetime import datetime
from uuid import UUID

import anyio.lowlevel

from duly.actors.context import Context
from duly.actors.intake import Intake
from duly.actors.messages import Ownership, PrefetcherMessage, Saturated, SaturatedKeys
from duly.actors.patience import Patience
from duly.actors.refills import Refills
from duly.actors.runtime import Actor, MailboxClosedError
from duly.actors.sweeping import Sweeping
from duly.actors.turns import Turns
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import BEGINNING, SLOTS, Cursor
from duly.wheel.durations import from_us

log = logging.getLogger("duly.prefetcher")

_FULL_S = 0.5  # between looks whether the wheel has room again
_TURN_S = 1.0  # a statement that takes longer is for half as many slots next time, before it takes too long


class Prefetcher(Actor[PrefetcherMessage]):
    """Keeps the wheel filled up to the horizon."""

    name = "prefetcher"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.prefetcher)
        self._context = context
        self._epochs: dict[int, int] = {}
        self._cursors: dict[int, Cursor] = {}
        self._unfinished: set[int] = set()
        self._turns = Turns(_TURN_S, SLOTS)
        self._refills = Refills(context)
        self._ownership = Ownership({}, 0.0)  # as last told; taken between two reads, as this is:
        self._turned_away: dict[int, datetime] = {}
        self._news = anyio.Event()
        self._patience = Patience("reading due tasks", log, context.vitals.postgres)
        self._patience_to_refill = Patience("bringing due tasks", log, context.vitals.postgres)
        self._intake = Intake(context, self._refills, self._patience, self.stopping)
        self._sweeping = Sweeping(context, self._intake, self._refills)
        self._refill_at = 0.0
        self._next_sweep = 0.0
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
            if message.epochs.items() - self._ownership.epochs.items():
                self._refills.gained()
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
        self._sweeping.begin_anew(gained, self._epochs)
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
                await self._sweeping.sweep(list(self._cursors))
            self._next_sweep = began + self._sweeping.every_s
        if clock.monotonic() >= self._next_pass:
            with self._context.meters.reading("pass"):
                await self._advance()

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
        turn = self._turns.take(self._unfinished)
        began = clock.monotonic()
        try:
            page = await self._intake.page(
                {slot: self._cursors[slot] for slot in turn}, before, room
            )
        except StoreUnavailableError:
            self._turns.failed(turn, clock.monotonic() - began)
            raise
        self._turns.took(turn, clock.monotonic() - began)
        for row in page.rows:
            self._cursors[row.slot] = Cursor(row.next_run_at, row.id)
        self._cursors |= page.more  # which may be further, past what was left out
        await self._intake.pass_on(page.rows)
        self._unfinished = self._unfinished.difference(turn).union(page.more)
        # With more to come it goes on at once, after what the mailbox and the sweep have.
        self._next_pass = 0.0 if self._unfinished else clock.monotonic() + options.horizon_s / 4
