"""A cluster in memory: no servers, a few milliseconds a test."""

import asyncio
import contextlib
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import Self
from uuid import UUID

from duly.nodes.client import Client
from duly.nodes.codec import Codec
from duly.nodes.worker import Worker
from duly.testing.api import MemoryTransport
from duly.testing.errors import Open
from duly.testing.harness import PATIENCE_S, START, Harness
from duly.testing.slots import MemoryWorker, new_streams
from duly.testing.store import Store
from duly.wheel.durations import to_us

_LOOK_S = 1.0  # so that patience ends though nothing happens


class MemoryCluster(Harness):
    """Does what `Cluster` does for submissions, schedules, retries, cancels and handlers.

    What it does not do raises `NotInMemory`.
    """

    def __init__(
        self,
        now: datetime = START,
        *,
        patience_s: float = PATIENCE_S,
        codec: Codec | None = None,
    ) -> None:
        """`now`: what time it is at first. `patience_s`: real seconds that handlers are given to end.

        `codec`: of the client; a worker brings its own.
        """
        super().__init__(now, patience_s)
        self._store = Store(self._clock)
        self._streams = new_streams()
        self._running: list[MemoryWorker] = []
        self._ids = count(1)
        self._changed = asyncio.Event()
        self._is_called = False
        self._client = _MemoryClient(
            MemoryTransport(self._store, self._clock, self._pump, self._cancel), codec
        )

    @property
    def client(self) -> Client:
        """Submits tasks and looks after them."""
        return self._client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._running:
            await worker.stop()
        await self._client.close()

    async def _start(self, worker: Worker) -> None:
        settings, handlers = worker.elsewhere(
            f"test-worker-{next(self._ids)}", now_ms=self._clock.now_ms
        )
        running = MemoryWorker(settings, handlers, self._store, self._streams, self._call)
        await running.ready()
        self._running.append(running)
        self._pump()

    async def _set(self, now: datetime) -> None:
        await super()._set(now)
        self._pump()

    async def _open(self, until: datetime) -> list[Open]:
        return [
            Open(
                str(one.row.id), one.row.type, one.row.queue, to_us(one.row.next_run_at),
                one.row.status == "running",
            )
            for one in self._store.due(until)
            if one.row.next_run_at is not None
        ]  # fmt: skip

    async def _pause(self) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(_LOOK_S, self._patience_s)):
                await self._changed.wait()

    def _call(self) -> None:
        """Go on once the worker that calls has finished what it is at."""
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Dispatch what is due, and let the workers take it."""
        self._is_called = False
        for kept in self._store.due(self.now):
            if kept.row.status == "pending" and (entry := self._store.claim(kept)):
                self._streams[entry.queue].append(entry)
        for worker in self._running:
            worker.take()
        self._changed.set()

    def _cancel(self, task_id: UUID, token: int) -> None:
        for worker in self._running:
            worker.cancel(task_id, token)


class _MemoryClient(Client):
    def __init__(self, transport: MemoryTransport, codec: Codec | None) -> None:
        super().__init__(codec=codec)
        self._transport = transport
