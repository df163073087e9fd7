"""What is measured: a node and workers as processes of their own, on servers given or embedded."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import asyncpg
import psutil
from redis.asyncio import Redis

from duly.nodes.embedded import EmbeddedServers
from duly.nodes.embedded.ports import choose
from duly.storage.migrate import migrate

QUEUE = "bench"
TASK_TYPE = "bench.noop"

T = TypeVar("T")

_STOP_S = 20.0
_HERE = Path(__file__).parent
_BATCH = 1000


@dataclass
class Rig:
    """A running node with its servers; workers as they are asked for."""

    api: str
    http: aiohttp.ClientSession
    database: Any
    redis: Redis
    environ: dict[str, str]
    node: psutil.Process
    workers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def set_workers(self, count: int) -> None:
        """Have exactly `count` workers, each known to the node."""
        while len(self.workers) > count:
            await _stop(self.workers.pop())
        while len(self.workers) < count:
            self.workers.append(await _spawn(["worker", "bench_worker"], self.environ))
        await _until(self._workers_are, count)
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

    async def lags_ms(self, ids: Sequence[str], timeout_s: float) -> list[float]:
        """Due to handler start, of every one of these tasks, once all of them have ended."""
        await self.wait_recorded(ids, timeout_s)
        rows = await self.database.fetch(
            "select extract(epoch from started_at - occurrence)::float8 * 1000 as lag_ms"
            " from runs where task_id = any($1::uuid[]) and outcome = 'completed'",
            ids,
        )
        if len(rows) != len(ids):
            raise RuntimeError(f"{len(rows)} runs for {len(ids)} tasks")
        return sorted(row["lag_ms"] for row in rows)

    async def wait_recorded(self, ids: Sequence[str], timeout_s: float) -> datetime:
        """Wait until every task has a run; answers when the last one was recorded."""

        async def ended() -> datetime | None:
            row = await self.database.fetchrow(
                "select count(*) as ended, max(recorded_at) as last from runs"
                " where task_id = any($1::uuid[])",
                ids,
            )
            return row["last"] if row["ended"] >= len(ids) else None

        return await _until(ended, timeout_s=timeout_s, every_s=0.25)


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
        folder = stack.enter_context(_temporary_folder())
        if database_url is None or redis_url is None:
            servers = await stack.enter_async_context(
                EmbeddedServers(folder / "servers", progress=lambda _: None)
            )
            database_url, redis_url = servers.database_url, servers.redis_url
        port = choose(folder / "api.port")
        environ = {
            **os.environ,
            "DULY_DATABASE_URL": database_url,
            "DULY_REDIS_URL": redis_url,
            "DULY_PORT": str(port),
        }
        api = f"http://127.0.0.1:{port}"
        if prepare is not None:
            await migrate(database_url)
            async with _connected(database_url) as database:
                await prepare(database)
        process = await _spawn(["node", "--log-level", "warning"], environ)
        stack.push_async_callback(_stop, process)
        timeout = aiohttp.ClientTimeout(total=60)
        connector = aiohttp.TCPConnector(limit=64)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=timeout, connector=connector)
        )
        await _until_ready(http, api, process)
        database = await stack.enter_async_context(_connected(database_url))
        redis = Redis.from_url(redis_url, protocol=2)
        stack.push_async_callback(redis.aclose)
        rig = Rig(api, http, database, redis, environ, psutil.Process(process.pid))
        try:
            yield rig
        finally:
            while rig.workers:
                await _stop(rig.workers.pop())


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, server_settings={"jit": "off"})
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="duly-bench-"))
    try:
        folder.chmod(0o711)  # the unprivileged user, as which root starts servers, gets in
        yield folder
    finally:
        shutil.rmtree(folder)


async def _spawn(args: list[str], environ: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "duly", *args, "--until-stdin-closes"),
        *(["--log-level", "warning"] if args[0] == "worker" else []),
        env=environ,
        cwd=_HERE,  # where the worker's module is
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _until_ready(
    http: aiohttp.ClientSession, api: str, process: asyncio.subprocess.Process
) -> None:
    async def ready() -> bool:
        if process.returncode is not None:
            raise RuntimeError(f"the node ended with code {process.returncode}")
        with suppress(aiohttp.ClientError):
            async with http.get(f"{api}/readyz") as answer:
                return answer.status == 200
        return False

    await _until(ready)


async def _until(
    condition: Callable[..., Awaitable[T | None]],
    *args: object,
    timeout_s: float = 60.0,
    every_s: float = 0.05,
) -> T:
    async with asyncio.timeout(timeout_s):
        while True:
            if value := await condition(*args):
                return value
            await asyncio.sleep(every_s)
