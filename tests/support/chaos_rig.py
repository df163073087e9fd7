"""A cluster of real processes, to be killed in the middle of its work, and what must be true after."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
from processes import Child, Processes
from redis.asyncio import Redis
from waiting import wait_for

from duly.nodes.client import Client
from duly.nodes.embedded import EmbeddedServers
from duly.storage import keys
from duly.storage.redis import connect

TASKS = 1_000
_HELD = 10  # of the tasks, and fewer than the worker takes at once
_ALL_DONE_S = 120.0
_SUPPORT = Path(__file__).parent
QUICK = {
    "DULY_LEASE_TTL_S": "2",
    "DULY_LEASE_RENEW_S": "0.25",
    "DULY_DISPATCH_GRACE_S": "2",
    "DULY_DB_STATEMENT_TIMEOUT_S": "2",
    "DULY_REDIS_TIMEOUT_S": "1",
}
"""Of a node that soon notices that another one is gone."""


class Cluster:
    """One node and one worker on servers of their own; `folder` is for a file of the test's own.

    A few of the tasks do not end before `all_done`: so what a test does before surely comes in the middle.
    """

    def __init__(self, servers: EmbeddedServers, processes: Processes, folder: Path) -> None:
        self.servers = servers
        self._gate = folder / "gate"
        self._processes = processes
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._environment = {
            **QUICK,
            "DULY_DATABASE_URL": servers.database_url,
            "DULY_REDIS_URL": servers.redis_url,
            "DULY_PORT": str(self._port),
            "DULY_TEST_GATE": str(self._gate),
            "PYTHONPATH": os.pathsep.join([str(_SUPPORT), os.environ.get("PYTHONPATH", "")]),
        }
        self.node = self.start_node()
        self.worker = self.start_worker()

    @property
    def api(self) -> str:
        """The node's address."""
        return f"http://127.0.0.1:{self._port}"

    def start_node(self) -> Child:
        """Start `duly node`."""
        self.node = self._processes.python("-m", "duly", "node", env=self._environment)
        return self.node

    def start_worker(self) -> Child:
        """Start `duly worker`."""
        self.worker = self._processes.python(
            "-m", "duly", "worker", "chaos_worker:worker", env=self._environment
        )
        return self.worker

    async def submit(self, count: int = TASKS) -> None:
        """Submit tasks that are due now, once the node takes them."""
        retried = {"max_retries": 10, "backoff": {"kind": "fixed", "delay": 0.2, "jitter": 0}}
        tasks = [
            {"type": "held" if n < _HELD else "work", "payload": n, **retried} for n in range(count)
        ]
        async with Client(self.api) as client:

            async def accepted() -> bool:
                await client.submit_batch(tasks)
                return True

            await wait_for(accepted, 30, "the node takes tasks", ignore=(Exception,))

    async def query(self, sql: str) -> Any:
        """One value from the store."""
        connection = await asyncpg.connect(self.servers.database_url, timeout=5)
        try:
            return await connection.fetchval(sql, timeout=10)
        finally:
            await connection.close()

    async def completed(self) -> int:
        """How many tasks have been recorded as completed."""
        return int(
            await self.query("select count(*) from finished_tasks where status = 'completed'")
        )

    async def in_the_middle(self) -> None:
        """Wait until a good part is done, while the worker is at work on tasks that do not end."""

        async def some() -> bool:
            return await self.completed() >= TASKS // 5

        await wait_for(some, 60, "some tasks are completed")
        await asyncio.to_thread(self.worker.wait_for_line, "^holds ")
        assert await self.completed() <= TASKS - _HELD

    async def all_done(self) -> None:
        """Every task completed, each recorded once, and nothing left over anywhere."""
        self._gate.touch()

        async def done() -> bool:
            return await self.completed() >= TASKS

        trouble = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
        await wait_for(done, _ALL_DONE_S, "every task is completed", ignore=trouble, poll_s=0.1)
        assert await self.query("select count(*) from tasks") == 0
        assert await self.query("select count(distinct id) from finished_tasks") == TASKS
        assert await self.query("select count(*) from runs where outcome = 'completed'") == TASKS
        assert await self.query("select count(distinct task_id) from runs") == TASKS
        assert await self.query("select count(distinct result) from runs") == TASKS
        await self._nothing_left()

    async def _nothing_left(self) -> None:
        client: Redis = connect(self.servers.redis_url, name="test")
        redis: Any = client

        async def empty() -> bool:
            counts = await asyncio.gather(
                redis.xlen(keys.tasks("default")), redis.xlen(keys.reports("default")),
                redis.hlen(keys.inflight("default")), redis.hlen(keys.entries("default")),
            )  # fmt: skip
            return not any(counts)

        try:
            await wait_for(empty, 30, "the streams are empty")
        finally:
            await client.aclose()


Disturb = Callable[[Cluster], Awaitable[None]]
