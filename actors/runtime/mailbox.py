"""A bounded mailbox, which belongs to a place in the tree rather than to one actor instance.

What was received and not yet marked `handled()` is handed out again, first and in order. So a
message is not lost when its actor is cancelled between receiving and handling: the instance that
takes its place gets it.
"""

from collections import deque
from typing import Generic, TypeVar

import anyio

M = TypeVar("M")


class MailboxClosedError(Exception):
    """The mailbox is closed: nothing more may be sent, and nothing is left to receive."""


class Mailbox(Generic[M]):
    """At most `size` waiting messages, any number of senders, one receiver at a time."""

    def __init__(self, name: str, size: int) -> None:
        assert size >= 1
        self.name = name
        self.size = size
        self.closed = False
        self._waiting: deque[M] = deque()
        self._taken: list[M] = []
        self._arrived = anyio.Event()
        self._space = anyio.Event()

    @property
    def depth(self) -> int:
        """Messages that wait or are being handled."""
        return len(self._waiting) + len(self._taken)

    async def send(self, message: M) -> None:
        """Put a message in, waiting while the mailbox is full (back-pressure).

        Raises `MailboxClosedError` once it is closed.
        """
        while not self.offer(message):
            if self.closed:
                raise MailboxClosedError(self.name)
            space = self._space
            await space.wait()

    def offer(self, message: M) -> bool:
        """Put a message in if there is room now; never waits."""
        if self.closed or len(self._waiting) >= self.size:
            return False
        self._waiting.append(message)
        self._arrived.set()
        return True

    async def receive(self) -> M:
        """The next message. Raises `MailboxClosedError` when closed and empty."""
        return (await self.receive_batch(1))[0]

    async def receive_batch(self, limit: int) -> list[M]:
        """Wait for one message, then take what is there, `limit` at most.

        What an earlier receiver did not finish comes first, alone.
        """
        assert limit >= 1
        while not self._taken and not self._waiting:
            if self.closed:
                raise MailboxClosedError(self.name)
            self._arrived = anyio.Event()
            await self._arrived.wait()
        # No await between taking and returning: a cancelled receiver has taken nothing.
        if self._taken:
            return self._taken[:limit]
        self._taken = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        self._space.set()
        self._space = anyio.Event()
        return list(self._taken)

    def handled(self, count: int | None = None) -> None:
        """The first `count` received messages (default: all) are done with."""
        del self._taken[:count]

    def close(self) -> None:
        """Refuse new messages; those that are in can still be received."""
        self.closed = True
        self._arrived.set()
        self._space.set()
