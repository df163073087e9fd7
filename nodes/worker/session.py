"""One life of a worker, from the first connection until nothing is in its hands any more.

    reader ──entries──▶ runner ──outcomes──▶ reporter      liveness      control ──cancel──▶ runner

Stopping goes the way of the work: first the reader stops taking and gives back what was not begun,
then what runs may end (or is stopped at the drain timeout), then the reports are sent, and only
then the liveness key goes. If one of the parts crashes, which would be a bug, all of them end and
`run` raises; what was in hand stays pending, and the nodes see to it when the key has run out.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from duly.actors.patience import Patience
from duly.nodes.codec import Codec
from duly.nodes.worker.calling import Middleware
from duly.nodes.worker.control import Control
from duly.nodes.worker.handlers import Handlers
from duly.nodes.worker.liveness import Liveness
from duly.nodes.worker.reader import Reader
from duly.nodes.worker.reporter import Reporter
from duly.nodes.worker.run import now_ms
from duly.nodes.worker.runner import Runner
from duly.nodes.worker.starts import Starts
from duly.nodes.worker.waiting import wait_for
from duly.storage.conveyor import Conveyor, GroupMissingError
from duly.storage.redis import TROUBLE

log = logging.getLogger("duly.worker")

FLUSH_S: Final = 5.0
"""How long a stopping worker tries to deliver its last reports."""

HURRIED_FLUSH_S: Final = 1.0
"""The same after a second signal."""


@dataclass(frozen=True)
class Settings:
    """What a worker was made with."""

    redis_url: str
    worker_id: str
    queues: list[str]
    concurrency: int
    api: str | None
    token: str | None
    drain_timeout_s: float
    processes: int
    middleware: list[Middleware]
    lifespan: Callable[[], AbstractAsyncContextManager[Any]]
    now_ms: Callable[[], float] = now_ms
    """What time reports say it is, milliseconds since the epoch."""
    codec: Codec | None = None


class Session:
    """The parts of a running worker; made inside the event loop."""

    def __init__(self, settings: Settings, handlers: Handlers) -> None:
        self._settings = settings
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self.opened = asyncio.Event()
        """Set once it takes tasks."""
        wake = asyncio.Event()
        self._conveyor = Conveyor(settings.redis_url, settings.worker_id)
        self._starts = Starts(settings.api, settings.token, settings.worker_id)
        self._reporter = Reporter(self._conveyor, settings.worker_id, wake.set)
        self._runner = Runner(
            settings.worker_id,
            settings.concurrency,
            handlers,
            self._reporter,
            self._starts,
            wake.set,
            settings.processes,
            settings.middleware,
            settings.now_ms,
            settings.codec,
        )
        self._liveness = Liveness(
            self._conveyor,
            settings.queues,
            settings.concurrency,
            f"duly-python/{version('duly')}",
            lambda: self._runner.running,
            self._runner.signs,
        )
        self._control = Control(self._conveyor, self._runner.cancel)
        self._reader = Reader(
            self._conveyor,
            settings.queues,
            self._runner,
            self._reporter,
            self._liveness.beat,
            wake,
        )

    def stop(self) -> None:
        """Begin to drain."""
        self._stopping.set()

    def hurry(self) -> None:
        """Stop at once: do not wait for what runs."""
        self._stopping.set()
        self._hurried.set()
        self._runner.hurry()

    async def run(self) -> None:
        """Work until `stop`."""
        try:
            async with self._settings.lifespan() as self._runner.state, self._starts:
                if await self._open():
                    self.opened.set()
                    await self._work()
                    await self._leave()
        finally:
            await self._conveyor.close()

    async def _open(self) -> bool:
        """Reach Redis, however long it takes; False if the worker was stopped meanwhile."""
        patience = Patience("connecting to Redis", log)
        while not self._stopping.is_set():
            try:
                await self._liveness.first()
                await self._reader.prepare()
            except (GroupMissingError, *TROUBLE) as error:
                await wait_for(self._stopping, patience.failed(error))
            else:
                patience.worked()
                return True
        return False

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._reporter.run())
            parts.create_task(self._liveness.run())
            listening = parts.create_task(self._control.run())
            reading = parts.create_task(self._reader.run())
            try:
                log.info(
                    "worker %s takes tasks from %s",
                    self._settings.worker_id,
                    ", ".join(self._settings.queues),
                )
                await self._stopping.wait()
                await self._drain(reading)
            finally:
                self._runner.abort()
                self._reporter.close()
                self._liveness.close()
                listening.cancel()

    async def _drain(self, reading: asyncio.Task[None]) -> None:
        self._reader.close()
        closing = asyncio.create_task(self._reader.closed(reading))
        await self._runner.drain(self._settings.drain_timeout_s)
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait([closing, hurried], return_when=asyncio.FIRST_COMPLETED)
            if not closing.done():
                reading.cancel()
            await closing
        finally:
            hurried.cancel()
        left = await self._reporter.flush(HURRIED_FLUSH_S if self._hurried.is_set() else FLUSH_S)
        if left:
            log.warning("%d reports could not be delivered; the nodes will see to the tasks", left)

    async def _leave(self) -> None:
        try:
            await self._conveyor.leave()
        except TROUBLE as error:
            log.warning("the liveness key could not be deleted and will run out: %s", error)
        log.info("worker %s has stopped", self._settings.worker_id)
