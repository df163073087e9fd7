"""The shape of an actor: it owns its state, and others reach it by messages only."""

import asyncio
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from duly.actors.runtime.mailbox import Mailbox, MailboxClosedError

M = TypeVar("M")


class Actor(Generic[M]):
    """Subclass, set `name`, and give it `handle`, or a `run` of its own.

    One instance lives once. After a crash the supervisor makes a new one, with the same mailbox.
    """

    name: str = "actor"

    def __init__(self, mailbox: Mailbox[M]) -> None:
        self.mailbox = mailbox
        self.stopping = anyio.Event()
        """Set when an ordered stop begins."""
        self._pauses: set[asyncio.Future[None]] = set()

    async def started(self) -> None:
        """Rebuild the state from the store. The next sibling starts only after this.

        Waits out what is expected to fail, such as an unreachable database: raising is a crash.
        """

    async def handle(self, message: M) -> None:
        """Do what one message asks for. Raising is a crash, and drops the message."""
        raise NotImplementedError(f"{self.name} takes no messages")

    async def run(self) -> None:
        """Handle messages one by one until the mailbox is closed and empty.

        Override it for timers and other loops: receive, handle, then `mailbox.handled()`, and
        return on `MailboxClosedError` or soon after `stopping` is set.
        """
        while True:
            try:
                message = await self.mailbox.receive()
            except MailboxClosedError:
                return
            await self.handle(message)
            self.mailbox.handled()
            await anyio.lowlevel.checkpoint()  # neither receive nor handle need have yielded

    async def stopped(self) -> None:
        """Last words of an ordered stop, after `run` returned and within the same grace."""

    async def pause(self, seconds: float) -> bool:
        """Wait that long, or until an ordered stop begins; return whether it has begun."""
        if not self.stopping.is_set():
            # A plain future and a timer: a scope costs several times as much, and this is what idle actors do.
            loop = asyncio.get_running_loop()
            end: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(max(0.0, seconds), _end, end)
            self._pauses.add(end)
            try:
                await end
            finally:
                self._pauses.discard(end)
                timer.cancel()
        return self.stopping.is_set()

    async def serve(self, ready: anyio.Event) -> None:
        """Live once; see `Runnable`."""
        await self.started()
        ready.set()
        await self.run()
        if self.stopping.is_set():
            await self.stopped()

    def request_stop(self) -> None:
        """See `Runnable`."""
        self.stopping.set()
        for end in self._pauses:
            _end(end)
        self.mailbox.close()


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
