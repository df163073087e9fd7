"""What the tests of the embedded servers share: a supervisor process, and data that must survive."""

from collections.abc import Callable
from pathlib import Path

import asyncpg
from processes import Child, Processes
from redis.asyncio import Redis

from duly.nodes.embedded import EmbeddedServers

# A supervisor as `duly up` is one: it prints its URLs and waits for the end.
SUPERVISOR = """
import signal, sys
from pathlib import Path
from duly.nodes.embedded import EmbeddedServers

signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
with EmbeddedServers(Path(sys.argv[1]), durable=False) as servers:
    print("ready", servers.database_url, servers.redis_url, flush=True)
    print("pids", servers.postgres.process.pid, servers.valkey.process.pid, flush=True)
    while True:
        signal.pause()
"""


def supervisor(processes: Processes, folder: Path) -> tuple[Child, str, str, list[int]]:
    """A running supervisor, its database URL and Redis URL, and the process ids of its servers."""
    child = processes.python("-c", SUPERVISOR, folder)
    urls = child.wait_for_line(r"^ready (\S+) (\S+)$")
    pids = child.wait_for_line(r"^pids (\d+) (\d+)$")
    return child, urls[1], urls[2], [int(pids[1]), int(pids[2])]


async def write(database_url: str, redis_url: str) -> None:
    """One acknowledged row and one acknowledged stream entry."""
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
        await connection.execute("INSERT INTO notes VALUES ('kept')")
    finally:
        await connection.close()
    async with Redis.from_url(redis_url, socket_timeout=60) as client:
        await client.xadd("notes", {"text": "kept"})


async def count(database_url: str, redis_url: str) -> tuple[int, int]:
    """How many rows and stream entries there are."""
    connection = await asyncpg.connect(database_url, timeout=60)
    try:
        rows = await connection.fetchval("SELECT count(*) FROM notes")
    finally:
        await connection.close()
    async with Redis.from_url(redis_url, socket_timeout=60) as client:
        return rows, await client.xlen("notes")


def quick(folder: Path, progress: Callable[[str], None] = lambda line: None) -> EmbeddedServers:
    """Servers in `folder` that do not wait for the disk."""
    return EmbeddedServers(folder, durable=False, die_with_parent=True, progress=progress)
