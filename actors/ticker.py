"""Owns the timing wheel, and passes on what is due, ahead of its time by what a claim takes (`lead`).

The prefetcher minds the wheel's cap by itself. What others tell of when the wheel is full waits in the
store: the prefetcher reads it again when there is room. Only what is due within two seconds is taken in all
the same.
"""

import logging
import math
from datetime import datetime

from duly.actors.context import Context
from duly.actors.messages import Due, Ownership, Sought, TickerMessage, TurnedAway
from duly.actors.runtime import Actor, MailboxClosedError
from duly.storage.slots import DueRow, ticked
from duly.storage.sweeps import Name, unknown
from duly.wheel.durations import to_us
from duly.wheel.wheel import Wheel

log = logging.getLogger("duly.ticker")

_BITE = 500  # so that a stall's catch-up leaves room for other work in between
_IDLE_S = 60.0
_MESSAGES = 100
_SOON_US = 3_500_000  # more than the prefetcher's sweep looks ahead


class Ticker(Actor[TickerMessage]):
    """Rows come in any order and more than once; they leave in due order, once per version."""

    name = "ticker"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.ticker)
        self._context = context
        self._wheel: Wheel[bytes, DueRow] = Wheel(context.clock.now_us())
        self._owned: frozenset[int] = frozenset()
        self._turned_away: dict[int, datetime] = {}
        self._reached_us = 0

    async def run(self) -> None:
        try:
            while True:
                fired = await self._fire()
                wait_s = 0.0 if fired else self._wait_s()
                for message in await self.mailbox.receive_batch(_MESSAGES, wait_s):
                    self._take(message)
                self.mailbox.handled()
                self._tell_turned_away()
                self._context.vitals.wheel_entries = len(self._wheel)
        except MailboxClosedError:
            # Ours, or the dispatcher's, which stops first: what is due stays in the store.
            await self.stopping.wait()

    def _take(self, message: TickerMessage) -> None:
        if isinstance(message, Ownership):
            owned = frozenset(message.epochs)
            if self._owned - owned:
                self._wheel.discard_where(lambda _, row: row.slot not in owned)
            self._owned = owned
            return
        if isinstance(message, Sought):
            message.reply.set(unknown(message.names, self._knows))
            return
        for row in message.rows:
            key = row.id.bytes
            known = self._wheel.get(key)
            # A page read before a change may arrive after the wake that told of it.
            if known is not None and known[1].version >= row.version:
                continue
            due_us = to_us(row.next_run_at)
            if known is None and message.reply is None and self._is_full_for(due_us):
                since = self._turned_away.get(row.slot, row.next_run_at)
                self._turned_away[row.slot] = min(since, row.next_run_at)
            else:
                self._wheel.insert(key, due_us, row)
        if message.reply is not None:
            message.reply.set(len(self._wheel))

    def _knows(self, _: str, name: Name) -> bool:
        known = self._wheel.get(name[0])
        return known is not None and known[1].version >= name[1]

    def _is_full_for(self, due_us: int) -> bool:
        is_full = len(self._wheel) >= self._context.options.wheel_cap
        return is_full and due_us > self._now_us() + _SOON_US

    def _tell_turned_away(self) -> None:
        if self._turned_away:
            told = self._context.boxes.prefetcher.offer(TurnedAway(self._turned_away))
            self._turned_away = {} if told else self._turned_away

    async def _fire(self) -> bool:
        now_us, lead = self._now_us(), self._context.lead
        next_us = self._wheel.next_due_us()
        if next_us is None or next_us > now_us + lead.us:
            return False
        # The lead may have become shorter meanwhile: no matter, the wheel's time has been there.
        self._reached_us = max(self._reached_us, now_us + lead.reach_us)
        due = self._wheel.advance(self._reached_us, _BITE)
        if due:
            rows = ticked((row for _, _, row in due), now_us)
            # Full: the dispatcher is busy. Waiting here holds back the prefetcher too.
            await self._context.boxes.dispatcher.send(Due(rows))
        return bool(due)

    def _wait_s(self) -> float:
        next_us = self._wheel.next_due_us()
        if next_us is None:
            return _IDLE_S
        # Whole milliseconds, as the loop's timers have: a shorter wait would end too early, and
        # be begun again and again until the time has come.
        wait_ms = math.ceil((next_us - self._context.lead.us - self._now_us()) / 1000)
        return min(_IDLE_S, max(1, wait_ms) / 1000)

    def _now_us(self) -> int:
        """Not what our clock shows while it waits for the cluster's to catch up."""
        clock = self._context.clock
        return clock.now_us() - clock.ahead_us
