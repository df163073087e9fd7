"""What both clusters promise."""

import asyncio
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self

from duly.nodes.client import Client
from duly.nodes.worker import Worker
from duly.testing.clock import SetClock
from duly.testing.errors import NotSettled, Open
from duly.wheel.durations import from_us

PATIENCE_S: Final = 30.0
"""Real seconds that handlers are given to end."""

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""What time it is at first: a Tuesday."""


class Harness(ABC):
    """A cluster for one test, used as an async context manager.

        async with MemoryCluster() as cluster:
            await cluster.start(worker)
            task = await cluster.client.submit("email.send", delay=3600)
            await cluster.advance(hours=1)

    Time stands still but for `advance`. What is due begins by itself, as in every cluster.
    """

    def __init__(self, now: datetime, patience_s: float) -> None:
        if now.tzinfo is None:
            raise ValueError(f"now needs a time zone: {now!r}")
        self._clock = SetClock(now)
        self._patience_s = patience_s
        self._workers: list[Worker] = []

    @property
    def now(self) -> datetime:
        """The cluster's time, in UTC."""
        return self._clock.now

    @property
    @abstractmethod
    def client(self) -> Client:
        """Submits tasks and looks after them."""

    async def start(self, worker: Worker) -> None:
        """Run the handlers of `worker` until the cluster ends; returns once they can be given tasks.

        Where the worker would connect to does not matter, and it may be started in any number of clusters.
        An error of its lifespan is raised here.
        """
        await self._start(worker)
        self._workers.append(worker)

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Move time on by so much, as `advance_to` does."""
        await self.advance_to(
            self.now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        )

    async def advance_to(self, when: datetime) -> None:
        """Move time on, and stop whenever something comes due until its handler has ended.

        So all that comes due until then runs, in order, each at its own time; also what is submitted or
        retried on the way. Raises ValueError if `when` is over, `NotSettled` as `settle` does.
        """
        if when < self.now:
            raise ValueError(f"time does not go back, from {self.now} to {when}")
        await self.settle()
        while (due_us := await self._next_due_us(when)) is not None:
            await self._set(max(self.now, from_us(due_us)))
            await self.settle()
        await self._set(when)

    async def settle(self) -> None:
        """Wait, in real time, until all that is due now has run to its end.

        Counted are tasks for which a started worker has a handler, and which are not paused, nor in a paused
        queue. Raises NotSettled, which names those that are left, if it takes longer than `patience_s`.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_s
        while left := await self._unsettled():
            if loop.time() > until_s:
                raise NotSettled(self._patience_s, left)
            await self._pause()

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Start the cluster."""

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop its workers, then the cluster."""

    @abstractmethod
    async def _start(self, worker: Worker) -> None: ...

    @abstractmethod
    async def _open(self, until: datetime) -> list[Open]:
        """Those that are due by then, as they are at one moment; none that is paused."""

    @abstractmethod
    async def _pause(self) -> None:
        """Wait until something may have happened."""

    async def _set(self, now: datetime) -> None:
        self._clock.set(now)

    async def _unsettled(self) -> list[Open]:
        return [one for one in await self._open(self.now) if self._is_handled(one)]

    async def _next_due_us(self, until: datetime) -> int | None:
        waiting = [one for one in await self._open(until) if self._is_handled(one)]
        return min((one.due_us for one in waiting), default=None)

    def _is_handled(self, one: Open) -> bool:
        return any(
            one.queue in worker.queues and one.type in worker.types for worker in self._workers
        )
