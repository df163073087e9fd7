"""What is measured: nodes and workers as processes of their own, on servers given or embedded."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import asyncpg
import psutil
from redis.asyncio import Redis

from benchmarks.processes import spawn, stop, until
from duly.nodes.embedded import EmbeddedServers
from duly.nodes.embedded.ports import choose
from duly.storage.migrate import migrate
from duly.storage.slots import SLOTS

QUEUE = "bench"
TASK_TYPE = "bench.noop"
FLAKY_TYPE = "bench.flaky"
"""Fails at its first attempt."""

_BATCH = 1000


class Start(NamedTuple):
    """When a task was due, and when its handler first started: seconds since 1970."""

    due: float
    started: float


class Node(NamedTuple):
    """A node's process and where its API is."""

    api: str
    process: asyncio.subprocess.Process


@dataclass
class Rig:
    """A running node with its servers; more nodes, and workers, as they are asked for."""

    http: aiohttp.ClientSession
    database: Any
    redis: Redis
    environ: dict[str, str]
    folder: Path
    worker_module: str = "benchmarks.bench_worker"
    nodes: list[Node] = field(default_factory=list)
    workers: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def api(self) -> str:
        """Where the first node is asked; it runs from the start to the end."""
        return self.nodes[0].api

    @property
    def node(self) -> psutil.Process:
        """The first node's process."""
        return psutil.Process(self.nodes[0].process.pid)

    async def set_nodes(self, count: int) -> None:
        """Have exactly `count` nodes, at least one, and the slots divided between all of them."""
        while len(self.nodes) > count:
            await stop(self.nodes.pop().process)
        while len(self.nodes) < count:
            port = choose(self.folder / f"api-{len(self.nodes)}.port")
            environ = {**self.environ, "DULY_PORT": str(port)}
            process = await _spawn(["node"], environ)
            self.nodes.append(Node(f"http://127.0.0.1:{port}", process))
            await _until_ready(self.http, self.nodes[-1])
        await until(self._slots_are_divided)

    async def _slots_are_divided(self) -> bool:
        owned = await self.database.fetch(
            "select count(*) as slots from slots where owner is not null group by owner"
        )
        counts = [row["slots"] for row in owned]
        even = max(counts, default=0) - min(counts, default=0) <= 1
        return len(counts) == len(self.nodes) and sum(counts) == SLOTS and even

    async def kill_node(self) -> None:
        """kill -9 the last node, of at least two."""
        if len(self.nodes) < 2:
            raise RuntimeError("the only node is not to be killed")
        process = self.nodes.pop().process
        process.kill()
        await process.wait()

    async def stop(self) -> None:
        """End all workers and nodes."""
        while self.workers:
            await stop(self.workers.pop())
        while self.nodes:
            await stop(self.nodes.pop().process)

    async def set_workers(self, count: int) -> None:
        """Have exactly `count` workers, each known to the node."""
        while len(self.workers) > count:
            await stop(self.workers.pop())
        while len(self.workers) < count:
            self.workers.append(await _spawn(["worker", self.worker_module], self.environ))
        await until(self._workers_are, count)
        await asyncio.sleep(1.5)  # until the node's own look, once a second, has found them

    async def _workers_are(self, count: int) -> bool:
        return len(await self.redis.keys("duly:workers:*")) == count

    async def submit(self, tasks: Sequence[dict[str, Any]]) -> list[str]:
        """Submit in batches of 1000; answers the ids in order."""
        ids: list[str] = []
        for at in range(0, len(tasks), _BATCH):
            body = {"tasks": tasks[at : at + _BATCH]}
            async with self.http.post(f"{self.api}/v1/tasks/batch", json=body) as answer:
                answer.raise_for_status()
                ids += (await answer.json())["ids"]
        return ids

    async def starts(self, ids: Sequence[str], timeout_s: float) -> list[Start]:
        """The first start of each of these tasks, by its due time, once all of them have ended."""
        await self.wait_recorded(ids, timeout_s)
        rows = await self.database.fetch(
            "select min(occurrence) as due, min(started_at) as started from runs"
            " where task_id = any($1::uuid[]) and started_at is not null group by task_id order by 1",
            ids,
        )
        if len(rows) != len(ids):
            raise RuntimeError(f"{len(rows)} of {len(ids)} tasks have started")
        return [Start(row["due"].timestamp(), row["started"].timestamp()) for row in rows]

    async def wait_recorded(self, ids: Sequence[str], timeout_s: float, each: int = 1) -> datetime:
        """Wait until every task has completed `each` times; answers when the last was recorded.

        A hundred of them are asked for first: to ask for all takes PostgreSQL from what is measured.
        """
        some = [*ids[:: max(1, len(ids) // 100)], ids[-1]]

        async def ended() -> datetime | None:
            if await self._recorded(some, each) is None:
                return None
            return await self._recorded(ids, each)

        return await until(ended, timeout_s=timeout_s, every_s=0.25)

    async def _recorded(self, ids: Sequence[str], each: int) -> datetime | None:
        row = await self.database.fetchrow(
            "select count(*) as ended, max(recorded_at) as last from runs"
            " where task_id = any($1::uuid[]) and outcome = 'completed'",
            ids,
        )
        return row["last"] if row["ended"] >= each * len(set(ids)) else None


@asynccontextmanager
async def running(
    database_url: str | None,
    redis_url: str | None,
    prepare: Callable[[Any], Awaitable[None]] | None = None,
) -> AsyncIterator[Rig]:
    """A node on the servers of these URLs, or on embedded ones in a folder that is removed again.

    `prepare` gets a connection to the migrated database before the node starts.
    """
    async with AsyncExitStack() as stack:
        if database_url is None or redis_url is None:
            servers = await stack.enter_async_context(embedded_servers())
            database_url, redis_url = servers.database_url, servers.redis_url
        yield await stack.enter_async_context(running_on(database_url, redis_url, prepare))


@asynccontextmanager
async def running_on(
    database_url: str,
    redis_url: str,
    prepare: Callable[[Any], Awaitable[None]] | None = None,
    environ: Mapping[str, str] | None = None,
    worker_module: str = "benchmarks.bench_worker",
) -> AsyncIterator[Rig]:
    """A node on these servers; it and its workers also see the variables of `environ`."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        await migrate(database_url)
        if prepare is not None:
            async with connected(database_url) as connection:
                await prepare(connection)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=60), connector=aiohttp.TCPConnector(limit=64)
            )
        )
        database = await stack.enter_async_context(connected(database_url))
        redis = Redis.from_url(redis_url, protocol=2, socket_timeout=10)
        stack.push_async_callback(redis.aclose)
        urls = {"DULY_DATABASE_URL": database_url, "DULY_REDIS_URL": redis_url}
        variables = {**os.environ, **urls, **(environ or {})}
        rig = Rig(http, database, redis, variables, folder, worker_module)
        stack.push_async_callback(rig.stop)
        await rig.set_nodes(1)
        yield rig


@asynccontextmanager
async def embedded_servers() -> AsyncIterator[EmbeddedServers]:
    """PostgreSQL and Valkey, fully durable, in a folder that is removed again."""
    with temporary_folder() as folder:
        async with EmbeddedServers(folder / "servers", progress=lambda _: None) as servers:
            yield servers


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection to this database."""
    connection = await asyncpg.connect(url, server_settings={"jit": "off"})
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed again, for servers and for what processes leave for each other."""
    folder = Path(tempfile.mkdtemp(prefix="duly-bench-"))
    try:
        folder.chmod(0o711)  # the unprivileged user, as which root starts servers, gets in
        yield folder
    finally:
        shutil.rmtree(folder)


async def _spawn(args: list[str], environ: dict[str, str]) -> asyncio.subprocess.Process:
    command = [sys.executable, "-P", "-m", "duly", *args, "--until-stdin-closes"]
    return await spawn([*command, "--log-level", "warning"], environ)


async def _until_ready(http: aiohttp.ClientSession, node: Node) -> None:
    async def ready() -> bool:
        if node.process.returncode is not None:
            raise RuntimeError(f"the node ended with code {node.process.returncode}")
        with suppress(aiohttp.ClientError):
            async with http.get(f"{node.api}/readyz") as answer:
                return answer.status == 200
        return False

    await until(ready)
