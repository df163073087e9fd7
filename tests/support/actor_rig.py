"""Actors that tell what happens to them, for the tests of the runtime."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from duly.actors.runtime import Actor, Child, Mailbox, Supervisor


class Recorder(Actor[str]):
    """Notes its life in `events`. The message "crash" makes it crash, "hang" never ends."""

    def __init__(self, name: str, mailbox: Mailbox[str], events: list[str]) -> None:
        super().__init__(mailbox)
        self.name = name
        self.events = events

    async def started(self) -> None:
        """Take a while, so that what does not wait for it would overtake."""
        await anyio.sleep(0.01)
        self.events.append(f"{self.name} up")

    async def handle(self, message: str) -> None:
        """Do as told."""
        if message == "crash":
            raise RuntimeError(f"{self.name} told to crash")
        if message == "hang":
            await anyio.sleep_forever()
        await anyio.sleep(0.01)
        self.events.append(f"{self.name} {message}")

    async def run(self) -> None:
        """The default loop, with its end noted."""
        try:
            await super().run()
        finally:
            self.events.append(f"{self.name} down")

    async def stopped(self) -> None:
        """Note that it came to last words."""
        self.events.append(f"{self.name} bye")


class Rig:
    """Children called a, b, c… that note their lives in one list of events."""

    def __init__(self, names: str = "abc", size: int = 10) -> None:
        self.events: list[str] = []
        self.boxes = {name: Mailbox[str](name, size) for name in names}
        self.children = [Child(name, self.factory(name), box) for name, box in self.boxes.items()]

    def factory(self, name: str) -> Callable[[], Actor[str]]:
        """Makes the actor called `name`."""
        return lambda: Recorder(name, self.boxes[name], self.events)

    def take_events(self) -> list[str]:
        """The events since the last call."""
        events = self.events[:]
        self.events.clear()
        return events


@asynccontextmanager
async def served(supervisor: Supervisor) -> AsyncIterator[anyio.abc.TaskGroup]:
    """A supervisor that has started; stopped in order at the end, unless it has ended before."""
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.serve, ready)
        await ready.wait()
        yield tasks
        supervisor.request_stop()


async def outcome(supervisor: Supervisor, timeout_s: float = 3600.0) -> Exception | None:
    """Serve until it ends by itself or is stopped; return what it raised."""
    with anyio.fail_after(timeout_s):
        try:
            await supervisor.serve(anyio.Event())
        except Exception as error:  # noqa: BLE001 - what it is, the test looks at
            return error
    return None


def states(supervisor: Supervisor) -> Sequence[tuple[str, str, int]]:
    """Name, state and restarts of each child."""
    return [(one.name, one.state, one.restarts) for one in supervisor.statistics()]
