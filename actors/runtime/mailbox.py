"""A bounded mailbox, which belongs to a place in the tree rather than to one actor instance.

A message is in one of two parts:

    send, offer ──▶ waiting (at most `size`) ──receive──▶ received ──handled──▶ gone
                          ▲                                  │
                          └──────────── put back ────────────┘

What was received and not marked `handled()` is handed out again, first and in order, by the next
receive. So no message is lost when a receiver is cancelled, be it at the very moment of receiving
(as happens with a memory channel, whose item is already on its way to a task that will not take
it): the actor instance that comes after gets it.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

import anyio

from duly.actors.runtime.reply import fail_reply

M = TypeVar("M")


class MailboxClosedError(Exception):
    """The mailbox is closed: nothing more may be sent, and nothing is left to receive."""


class Mailbox(Generic[M]):
    """At most `size` (1 or more) waiting messages, any number of senders, one receiver at a time.

    What has been received makes room for others: a mailbox of size 1 takes a new wake-up while the
    actor works on the last one. Put back, it may exceed `size` for a while.
    """

    def __init__(self, name: str, size: int) -> None:
        if size < 1:
            raise ValueError(f"mailbox {name}: size must be 1 or more, not {size}")
        self.name = name
        self.size = size
        self._closed = False
        self._waiting: deque[M] = deque()
        self._received: list[M] = []
        self._senders: deque[anyio.Event] = deque()
        self._promised = 0  # room of senders that were let in and have not run yet
        self._arrival: asyncio.Future[bool] | None = None

    @property
    def depth(self) -> int:
        """Messages that wait or are being handled: 0 means that all is done."""
        return len(self._waiting) + len(self._received)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    # Senders

    async def send(self, message: M) -> None:
        """Put a message in, waiting in line while the mailbox is full (back-pressure).

        A send that is cancelled has put nothing in. Does not yield if there is room.
        Raises `MailboxClosedError` once the mailbox is closed.
        """
        if not self._closed and self._room() < 1:
            await self._wait_in_line()
        if self._closed:
            raise MailboxClosedError(f"mailbox {self.name} is closed")
        self._accept(message)

    def offer(self, message: M) -> bool:
        """Put a message in if there is room now; never waits. False when full or closed."""
        if self._closed or self._room() < 1:
            return False
        self._accept(message)
        return True

    def close(self) -> None:
        """Refuse new messages, also of senders in line; what is in can still be received."""
        self._closed = True
        while self._senders:
            self._let_in()
        self._tell_receiver()

    def _room(self) -> int:
        return self.size - len(self._waiting) - self._promised

    def _accept(self, message: M) -> None:
        self._waiting.append(message)
        self._tell_receiver()

    async def _wait_in_line(self) -> None:
        turn = anyio.Event()
        self._senders.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # cancelled when its turn had come: the next one's
                self._promised -= 1
                self._fill_room()
            else:
                self._senders.remove(turn)
            raise
        self._promised -= 1

    def _fill_room(self) -> None:
        while self._senders and self._room() > 0:
            self._let_in()

    def _let_in(self) -> None:
        self._promised += 1
        self._senders.popleft().set()

    # The receiver

    async def receive(self) -> M:
        """Return the next message; see `receive_batch`."""
        while True:
            for message in await self.receive_batch(1):
                return message

    async def receive_batch(self, limit: int, within_s: float | None = None) -> list[M]:
        """Wait for one message, then take what is there, `limit` (1 or more) at most.

        Empty if none came within `within_s` seconds (default: no limit; 0 or less: others run once),
        or if `nudge` was called meanwhile. Does not yield to other tasks if a message is there.
        Raises `MailboxClosedError` when closed and empty.
        """
        if limit < 1:
            raise ValueError(f"mailbox {self.name}: limit must be 1 or more, not {limit}")
        self.put_back()
        while not self._waiting:
            if self._closed:
                raise MailboxClosedError(f"mailbox {self.name} is closed and empty")
            if not await self._wait_for_arrival(within_s):
                break
        # No await from here on: a receiver that is cancelled has taken nothing.
        count = min(limit, len(self._waiting))
        self._received = [self._waiting.popleft() for _ in range(count)]
        self._fill_room()
        return list(self._received)

    def nudge(self) -> None:
        """Let a receiver that waits return without a message; not one that comes later."""
        self._tell_receiver(arrived=False)

    def handled(self) -> None:
        """What the last receive returned is done with."""
        self._received = []

    def put_back(self) -> None:
        """What was received and not handled waits again, before all others."""
        self._waiting.extendleft(reversed(self._received))
        self._received = []

    async def _wait_for_arrival(self, within_s: float | None) -> bool:
        """Whether it is because of a message, or the end."""
        if self._arrival is not None:
            raise RuntimeError(f"mailbox {self.name} has two receivers")
        # Plain futures: scopes and events made of them cost several times as much.
        loop = asyncio.get_running_loop()
        self._arrival = loop.create_future()
        timer = None if within_s is None else loop.call_later(max(0.0, within_s), self.nudge)
        try:
            return await self._arrival
        finally:
            self._arrival = None
            if timer is not None:
                timer.cancel()

    def _tell_receiver(self, *, arrived: bool = True) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(arrived)

    # The supervisor

    def drop_received(self, error: Exception) -> int:
        """Drop what was received and not handled, failing its replies; returns how many."""
        dropped, self._received = self._received, []
        for message in dropped:
            fail_reply(message, error)
        return len(dropped)

    def drop_all(self, error: Exception) -> int:
        """Drop every message, failing its reply; returns how many."""
        self.put_back()
        self._received = list(self._waiting)
        self._waiting.clear()
        self._fill_room()
        return self.drop_received(error)
