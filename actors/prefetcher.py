"""Reads what falls due in this node's slots into the wheel.

Two readers over the same index. The *pass* advances a cursor per slot up to the horizon, in pages,
and stops while the wheel is full. The *sweep*, every 500 ms, reads whatever is due within the next
1.5 s: it finds what a lost wake or a late commit left behind the cursors.

A queue that has more due than its workers take is *saturated*: it is left out until the dispatcher
has room, and then read again from its oldest task.
"""

import logging
from datetime import UTC, datetime
from uuid import UUID

import anyio

from duly.actors.context import Context
from duly.actors.messages import PrefetcherMessage, Saturated, Schedule
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, MailboxClosedError, Reply
from duly.storage import slots
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import Cursor, DueRow
from duly.wheel.durations import from_us

log = logging.getLogger("duly.prefetcher")

_SWEEP_AHEAD_S = 1.5
_SWEEP_ROUNDS = 10
_PAGE = 2000
_ANSWER_S = 10.0
# A commit is at most this late behind the clock reading that its rows carry.
_LATE_COMMIT_S = 60.0
_BEGINNING = Cursor(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


class Prefetcher(Actor[PrefetcherMessage]):
    """Keeps the wheel filled up to the horizon."""

    name = "prefetcher"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.prefetcher)
        self._context = context
        self._cursors: dict[int, Cursor] = {}
        self._unfinished: set[int] = set()
        self._saturated: frozenset[str] = frozenset()
        self._patience = Patience("reading due tasks", log)
        self._next_sweep = 0.0
        self._next_pass = 0.0
        self._next_restart = 0.0

    async def run(self) -> None:
        clock = self._context.clock
        while True:
            wait_s = max(0.0, min(self._next_sweep, self._next_pass) - clock.monotonic())
            messages: list[PrefetcherMessage] = []
            try:
                with anyio.move_on_after(wait_s):
                    messages = await self.mailbox.receive_batch(64)
            except MailboxClosedError:
                return
            for message in messages:
                self._take(message)
            self.mailbox.handled()
            try:
                await self._read()
                self._patience.worked()
            except StoreUnavailableError as error:
                wait_s = self._patience.failed(error)
                self._next_sweep = self._next_pass = clock.monotonic() + wait_s

    def _take(self, message: PrefetcherMessage) -> None:
        if isinstance(message, Saturated):
            if self._saturated - message.queues:
                self._restart()
            self._saturated = message.queues
            return
        gained = set(message.epochs) - set(self._cursors)
        self._cursors = {slot: self._cursors.get(slot, _BEGINNING) for slot in message.epochs}
        self._unfinished &= set(self._cursors)
        if gained:
            self._unfinished |= gained
            self._next_pass = self._next_sweep = 0.0

    def _restart(self) -> None:
        self._cursors = dict.fromkeys(self._cursors, _BEGINNING)
        self._unfinished = set(self._cursors)
        self._next_pass = 0.0

    async def _read(self) -> None:
        if not self._cursors:
            self._next_sweep = self._next_pass = self._context.clock.monotonic() + 1.0
            return
        if self._context.clock.monotonic() >= self._next_sweep:
            self._next_sweep = self._context.clock.monotonic() + self._context.options.sweep_every_s
            await self._sweep()
        if self._context.clock.monotonic() >= self._next_pass:
            await self._advance()

    async def _sweep(self) -> None:
        now_us = self._context.clock.now_us()
        start = _BEGINNING
        if self._saturated:
            # A long backlog is known: skip it here; a restart of the pass, once a minute, covers it.
            start = Cursor(from_us(now_us - round(_LATE_COMMIT_S * 1e6)), UUID(int=0))
            if self._context.clock.monotonic() >= self._next_restart:
                self._next_restart = self._context.clock.monotonic() + _LATE_COMMIT_S
                self._restart()
        before = from_us(now_us + round(_SWEEP_AHEAD_S * 1e6))
        cursors = dict.fromkeys(self._cursors, start)
        for _ in range(_SWEEP_ROUNDS):
            rows, cursors = await self._page(cursors, before)
            await self._pass_on(rows)
            if not cursors:
                return

    async def _advance(self) -> None:
        """One page of the pass. Comes again at once until the horizon is reached."""
        options, clock = self._context.options, self._context.clock
        if not self._unfinished:
            self._unfinished = set(self._cursors)  # the horizon has moved on
        before = from_us(clock.now_us() + round(options.horizon_s * 1e6))
        asked = {slot: self._cursors[slot] for slot in self._unfinished}
        rows, more = await self._page(asked, before)
        for row in rows:
            self._cursors[row.slot] = Cursor(row.next_run_at, row.id)
        entries = await self._pass_on(rows)
        self._unfinished = set(more)
        if entries >= options.wheel_cap:
            self._next_pass = clock.monotonic() + 1.0
        elif not more:
            self._next_pass = clock.monotonic() + options.horizon_s / 4
        else:
            self._next_pass = 0.0

    async def _page(
        self, cursors: dict[int, Cursor], before: datetime
    ) -> tuple[list[DueRow], dict[int, Cursor]]:
        """A page, and the cursors of the slots that have more."""
        per_slot = max(4, _PAGE // len(cursors))
        rows = await slots.due(self._context.db, cursors, before, per_slot, sorted(self._saturated))
        counts: dict[int, int] = {}
        last: dict[int, Cursor] = {}
        for row in rows:
            counts[row.slot] = counts.get(row.slot, 0) + 1
            last[row.slot] = Cursor(row.next_run_at, row.id)
        return rows, {slot: last[slot] for slot, n in counts.items() if n == per_slot}

    async def _pass_on(self, rows: list[DueRow]) -> int:
        """Give rows to the wheel, at its pace; answers how many entries it holds."""
        if not rows:
            return self._context.vitals.wheel_entries
        reply: Reply[int] = Reply()
        await self._context.boxes.ticker.send(Schedule(rows, reply))
        while not reply.answered:
            try:
                return await reply.wait(_ANSWER_S)
            except TimeoutError:
                if self.stopping.is_set():
                    break
        return self._context.vitals.wheel_entries
