"""The shape of an actor: it owns its state, and others reach it by messages only."""

import logging
from typing import Generic, Protocol, TypeVar

import anyio

from duly.actors.runtime.mailbox import Mailbox, MailboxClosedError

log = logging.getLogger("duly.actors")
M = TypeVar("M")


class ActorReturnedError(Exception):
    """An actor's `run` ended though nobody had asked it to stop: that counts as a crash."""


class Runnable(Protocol):
    """What a supervisor can look after: an actor, or another supervisor."""

    name: str

    async def serve(self, ready: anyio.Event) -> None:
        """Start, set `ready`, run until stopped. Raises if it cannot go on."""

    def request_stop(self) -> None:
        """Begin an ordered stop: take in nothing new, finish what is there, return."""


class Actor(Generic[M]):
    """Subclass, set `name`, and give it `handle`, or a `run` of its own."""

    name = "actor"

    def __init__(self, mailbox: Mailbox[M]) -> None:
        self.mailbox = mailbox
        self.stopping = anyio.Event()

    async def started(self) -> None:
        """Rebuild the state from the store. The next sibling starts only after this."""

    async def handle(self, message: M) -> None:
        """Do what one message asks for."""
        raise NotImplementedError(f"{self.name} takes no messages")

    async def run(self) -> None:
        """Handle messages one by one until the mailbox is closed and empty.

        A message whose handling raises crashes the actor once and is not handed out again; a
        message whose handling is cancelled is.
        """
        while True:
            try:
                message = await self.mailbox.receive()
            except MailboxClosedError:
                return
            try:
                await self.handle(message)
            except Exception:
                self.mailbox.handled()
                raise
            self.mailbox.handled()

    async def stopped(self) -> None:
        """Last words of an ordered stop, after `run` returned."""

    async def pause(self, seconds: float) -> bool:
        """Wait that long, or until asked to stop; true if asked to stop."""
        with anyio.move_on_after(seconds):
            await self.stopping.wait()
        return self.stopping.is_set()

    async def serve(self, ready: anyio.Event) -> None:
        """Run this actor once; see `Runnable`."""
        await self.started()
        ready.set()
        await self.run()
        if not self.stopping.is_set():
            raise ActorReturnedError(f"{self.name} returned")
        await self.stopped()

    def request_stop(self) -> None:
        """See `Runnable`."""
        self.stopping.set()
        self.mailbox.close()
