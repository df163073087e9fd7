"""Owns the timing wheel, and passes on what is due when it is due."""

import logging

import anyio

from duly.actors.context import Context
from duly.actors.messages import Due, Ownership, TickerMessage
from duly.actors.runtime import Actor, MailboxClosedError
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us
from duly.wheel.wheel import Wheel

log = logging.getLogger("duly.ticker")

_BITE = 500  # so that a stall's catch-up leaves room for other work in between
_IDLE_S = 60.0


class Ticker(Actor[TickerMessage]):
    """Rows come in any order and more than once; they leave in due order, once per version."""

    name = "ticker"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.ticker)
        self._context = context
        self._wheel: Wheel[bytes, DueRow] = Wheel(context.clock.now_us())
        self._owned: frozenset[int] = frozenset()

    async def run(self) -> None:
        while True:
            fired = await self._fire()
            wait_s = 0.0 if fired else self._wait_s()
            messages: list[TickerMessage] = []
            try:
                with anyio.move_on_after(wait_s):
                    messages = await self.mailbox.receive_batch(100)
            except MailboxClosedError:
                return
            for message in messages:
                self._take(message)
            self.mailbox.handled()
            self._context.vitals.wheel_entries = len(self._wheel)

    def _take(self, message: TickerMessage) -> None:
        if isinstance(message, Ownership):
            owned = frozenset(message.epochs)
            if self._owned - owned:
                self._wheel.discard_where(lambda _, row: row.slot not in owned)
            self._owned = owned
            return
        for row in message.rows:
            key = row.id.bytes
            known = self._wheel.get(key)
            # A page read before a change may arrive after the wake that told of it.
            if known is None or known[1].version < row.version:
                self._wheel.insert(key, to_us(row.next_run_at), row)
        if message.reply is not None:
            message.reply.set(len(self._wheel))

    async def _fire(self) -> bool:
        due = self._wheel.advance(self._context.clock.now_us(), _BITE)
        if due:
            # Full: the workers are behind. Waiting here holds back the prefetcher too.
            await self._context.boxes.dispatcher.send(Due([row for _, _, row in due]))
        return bool(due)

    def _wait_s(self) -> float:
        next_us = self._wheel.next_due_us()
        if next_us is None:
            return _IDLE_S
        # At least a little: timers round to milliseconds, and a wait of 0 would never end.
        return min(_IDLE_S, max(0.0002, (next_us - self._context.clock.now_us()) / 1_000_000))
