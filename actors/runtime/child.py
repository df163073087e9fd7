"""A place in the tree: how to fill it, what fills it now, and what is told of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import anyio

from duly.actors.runtime.mailbox import Mailbox

State = Literal["new", "starting", "running", "stopping", "crashed", "stopped"]


class Runnable(Protocol):
    """What a supervisor looks after: an actor, or another supervisor."""

    @property
    def mailbox(self) -> Mailbox[Any] | None:
        """What it receives from, if it does."""

    async def serve(self, ready: anyio.Event) -> None:
        """Start, set `ready`, run until asked to stop. Raises if it cannot go on."""

    def request_stop(self) -> None:
        """Begin an ordered stop: take in nothing new, finish what is there, return."""


@dataclass(frozen=True)
class Child:
    """What belongs in a place. `factory` makes a fresh instance for each start.

    `mailbox`: give it if others may send before the first start; else the instance's is known.
    `grace_s`: seconds in which an ordered stop must be done, else it is cancelled (default: the
    supervisor's). A supervisor as a child has no such limit: its own children have.
    """

    name: str
    factory: Callable[[], Runnable]
    mailbox: Mailbox[Any] | None = None
    grace_s: float | None = None


class ChildState(NamedTuple):
    """What `Supervisor.statistics` tells of one child.

    `name` is a path for the children of a child. `restarts` counts those for a sibling's crash too.
    A depth above the size means that messages are being handled. Without a mailbox both are 0.
    """

    name: str
    state: State
    restarts: int
    mailbox_depth: int
    mailbox_size: int
    last_error: str | None


@dataclass(eq=False)
class Place:
    """A supervisor's own record of a child; `alive` from its start until its task has ended."""

    child: Child
    alive: bool = False
    crashed: bool = False
    stopping: bool = False
    starts: int = 0
    last_error: str | None = None
    instance: Runnable | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def mailbox(self) -> Mailbox[Any] | None:
        """The child's mailbox, if it has one."""
        if self.child.mailbox is None and self.instance is not None:
            return self.instance.mailbox
        return self.child.mailbox

    def begin(self) -> None:
        """Make ready for a new instance."""
        assert not self.alive
        self.alive, self.crashed, self.instance = True, False, None
        self.ready, self.done, self.scope = anyio.Event(), anyio.Event(), anyio.CancelScope()
        self.starts += 1

    def end(self) -> None:
        """Note that the instance is gone; what it left unhandled waits for the next one."""
        if self.mailbox is not None:
            self.mailbox.put_back()
        self.alive = False
        self.done.set()

    async def cancel(self) -> None:
        """Cancel the instance, if there is one, and wait until it is gone."""
        if self.alive:
            self.scope.cancel()
            await self.done.wait()

    def state(self) -> ChildState:
        """What is told of it."""
        state: State
        if self.alive:
            running: State = "running" if self.ready.is_set() else "starting"
            state = "stopping" if self.stopping else running
        elif self.crashed:
            state = "crashed"
        else:
            state = "stopped" if self.starts else "new"
        box = self.mailbox
        depth, size = (box.depth, box.size) if box is not None else (0, 0)
        restarts = max(0, self.starts - 1)
        return ChildState(self.child.name, state, restarts, depth, size, self.last_error)
