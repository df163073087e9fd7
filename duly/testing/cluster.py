"""A whole node in the test's own process, on a real PostgreSQL and Valkey."""

import asyncio
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

import anyio
import msgspec

from duly.nodes.client import Client, Task
from duly.nodes.codec import Codec
from duly.nodes.node import open_context, tree
from duly.nodes.server import Announce
from duly.nodes.settings import Settings
from duly.nodes.tls import certificate
from duly.nodes.worker import Worker
from duly.nodes.worker.session import Session
from duly.storage.slots import SLOTS
from duly.testing.errors import Open
from duly.testing.harness import PATIENCE_S, START, Harness
from duly.testing.servers import TestServers
from duly.wheel.durations import to_us

_START_S = 120.0
_LOOK_EVERY_S = 0.02
_SETTINGS: Final[dict[str, Any]] = {
    "port": 0,
    "lease_ttl_s": 5.0,
    "lease_renew_s": 0.5,
    "sweep_every_s": 0.05,  # so soon after a step of the clock it is seen what is due
    "claim_ahead_s": 0.0,  # the time ahead of a clock that stands never comes
    "stop_grace_s": 5.0,
}


class Cluster(Harness):
    """A node with an empty database; its clock moves when the test says so.

    `start` runs workers in this process, connected to the cluster.
    """

    def __init__(
        self,
        servers: TestServers,
        now: datetime = START,
        *,
        patience_s: float = PATIENCE_S,
        codec: Codec | None = None,
        **settings: Any,
    ) -> None:
        """`servers`: started ones, for one cluster at a time. `now`: what time it is at first.

        `patience_s`: real seconds that handlers are given to end. `codec`: of the client; a worker brings its own.
        `settings`: of the node, as in docs/settings.md.
        """
        super().__init__(now, patience_s)
        self._servers = servers
        self._codec = codec
        self._settings = settings
        self._stack = AsyncExitStack()
        self._ids = count(1)
        self._sessions: list[tuple[Session, asyncio.Task[None]]] = []
        self._client: Client | None = None
        self.url = ""
        """Where the node's API is, once it has started."""

    @property
    def client(self) -> Client:
        """Submits tasks and looks after them."""
        if self._client is None:
            raise RuntimeError("the cluster has not started: use it as an async context manager")
        return self._client

    async def __aenter__(self) -> Self:
        try:
            await self._run_node()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _run_node(self) -> None:
        url = await self._servers.take()
        self._stack.push_async_callback(self._servers.give_back, url)
        values = {"database_url": url, "redis_url": self._servers.redis_url}
        settings = msgspec.structs.replace(Settings(), **{**_SETTINGS, **self._settings, **values})
        announce = Announce(settings.host, certificate(settings))
        context = await self._stack.enter_async_context(open_context(settings, self._clock))
        supervisor = tree(context, settings, announce)
        ready = anyio.Event()
        serving = asyncio.create_task(supervisor.serve(ready))

        async def stop() -> None:
            supervisor.request_stop()
            await serving

        self._stack.push_async_callback(stop)
        async with asyncio.timeout(_START_S):
            while not ready.is_set() or context.vitals.owned_slots < SLOTS:
                if serving.done():
                    await serving
                    raise RuntimeError("the node has ended before it was ready")
                await asyncio.sleep(_LOOK_EVERY_S)
        self.url = announce.url
        self._client = await self._stack.enter_async_context(Client(self.url, codec=self._codec))
        self._stack.push_async_callback(self._stop_workers)

    async def _start(self, worker: Worker) -> None:
        settings, handlers = worker.elsewhere(
            f"test-worker-{next(self._ids)}",
            redis_url=self._servers.redis_url, api=self.url, now_ms=self._clock.now_ms,
        )  # fmt: skip
        session = Session(settings, handlers)
        life = asyncio.create_task(session.run())
        self._sessions.append((session, life))
        opened = asyncio.create_task(session.opened.wait())
        await asyncio.wait([opened, life], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if life.done():
            self._sessions.remove((session, life))
            await life

    async def _stop_workers(self) -> None:
        for session, _ in self._sessions:
            session.stop()
        for _, life in self._sessions:
            await life

    async def _open(self, until: datetime) -> list[Open]:
        paused = {queue.queue async for queue in self.client.queues() if queue.paused}
        tasks = await self.client.list(due_before=until + timedelta(microseconds=1))
        return [
            _as_open(task, task.next_run_at)
            for task in tasks
            if task.next_run_at is not None
            and (task.status == "running" or (task.status == "pending" and not task.paused and task.queue not in paused))
        ]  # fmt: skip

    async def _pause(self) -> None:
        await asyncio.sleep(_LOOK_EVERY_S)


def _as_open(task: Task, due: datetime) -> Open:
    return Open(str(task.id), task.type, task.queue, to_us(due), task.status == "running")
