"""A worker of a cluster in memory: its lifespan, and its handlers run by the same code as a real one's."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, MutableMapping
from uuid import UUID

from duly.nodes.worker.handlers import Handlers
from duly.nodes.worker.outcomes import Outcome
from duly.nodes.worker.reporter import words_of
from duly.nodes.worker.runner import Runner
from duly.nodes.worker.session import Settings
from duly.nodes.worker.starts import Starts
from duly.storage.conveyor import Entry
from duly.testing.store import Store

Streams = MutableMapping[str, deque[Entry]]
"""What is dispatched and not taken, by queue."""


def new_streams() -> Streams:
    """Empty ones."""
    return defaultdict(deque)


class MemoryWorker:
    """Takes what is dispatched while it has room."""

    def __init__(
        self,
        settings: Settings,
        handlers: Handlers,
        store: Store,
        streams: Streams,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when an attempt has ended, or there is room again."""
        self._settings = settings
        self._store = store
        self._streams = streams
        self._on_change = on_change
        self._runner = Runner(
            settings.worker_id, settings.concurrency, handlers, self,
            Starts(None, None, settings.worker_id), on_change, settings.processes,
            settings.middleware, settings.now_ms, settings.codec,
        )  # fmt: skip
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._life = asyncio.create_task(self._run())

    async def ready(self) -> None:
        """Returns once the lifespan has begun; raises what it raises."""
        await asyncio.wait([self._ready, self._life], return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            await self._life

    async def stop(self) -> None:
        """Give what runs the worker's time to end, then end the lifespan."""
        self._stopping.set()
        await self._life

    def take(self) -> None:
        """Start what is dispatched in the worker's queues, as far as there is room."""
        if self._stopping.is_set():
            return
        for queue in self._settings.queues:
            entries = self._streams[queue]
            while entries and self._runner.free > 0:
                entry = entries.popleft()
                if self._store.is_held(entry):
                    self._runner.start(entry)

    def cancel(self, task_id: UUID, token: int) -> None:
        """Stop that attempt, if it is here."""
        self._runner.cancel(str(task_id), token)

    def report(self, entry: Entry, outcome: Outcome, started_ms: float, finished_ms: float) -> None:
        """Record the outcome of an attempt."""
        words = words_of(entry, outcome, self._settings.worker_id, started_ms, finished_ms)
        self._store.report(words)
        self._on_change()

    def drop(self, queue: str, entry_id: bytes) -> None:
        """An attempt ended that nobody waits for."""
        self._on_change()

    async def _run(self) -> None:
        async with self._settings.lifespan() as self._runner.state:
            self._ready.set_result(None)
            await self._stopping.wait()
            await self._runner.drain(self._settings.drain_timeout_s)
