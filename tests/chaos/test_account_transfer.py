"""Transfers between accounts while their workers are killed and frozen: each is applied once.

Frozen workers wake after others have taken over: one while transfers are still under way, so that it
may even come before its successor, one when all is done.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from processes import Child, Processes
from servers import ServerFactory
from waiting import wait_for

from duly.nodes.embedded import EmbeddedServers
from duly.storage import keys
from duly.storage.redis import call, connect

pytestmark = pytest.mark.chaos

FOLDER = Path(__file__).parents[2] / "examples" / "account_transfer"
TRANSFERS = 300
LIMIT_S = 90.0


class Bank:
    """The example in processes of its own: a node, workers, and the bank in a database apart."""

    def __init__(self, servers: EmbeddedServers, processes: Processes, folder: Path) -> None:
        self._servers = servers
        self._processes = processes
        self._redis = connect(servers.redis_url, name="test")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        base, _, rest = servers.database_url.rpartition("/")
        self.bank_url = f"{base}/bank{'?' + rest.partition('?')[2] if '?' in rest else ''}"
        self._urls = folder / "urls.json"
        self._urls.write_text(
            json.dumps({"api": f"http://127.0.0.1:{port}", "database": self.bank_url})
        )
        self._environment = {
            "DULY_DATABASE_URL": servers.database_url,
            "DULY_REDIS_URL": servers.redis_url,
            "DULY_PORT": str(port),
            "BANK_DATABASE_URL": self.bank_url,
            "BANK_CHECKING_S": "1",
            "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    async def open(self) -> None:
        """Make the bank's database, and start the node."""
        await self.query(self._servers.database_url, "create database bank")
        node = self._processes.python("-m", "duly", "node", env=self._environment)
        await asyncio.to_thread(node.wait_for_line, "listening on")

    async def close(self) -> None:
        """Close the test's own connection."""
        await self._redis.aclose()

    async def worker(self) -> Child:
        """Start one more worker; it takes tasks."""
        child = self._processes.python(
            "-m", "duly", "worker", "bank_worker:worker", env=self._environment
        )
        await asyncio.to_thread(child.wait_for_line, "takes tasks from")
        return child

    def transfers(self, count: int) -> Child:
        """Start the script that submits so many, waits and checks."""
        return self._processes.python(
            FOLDER / "transfers.py", self._urls, "--count", str(count), env=self._environment
        )

    async def query(self, url: str, sql: str) -> Any:
        """One value."""
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return await connection.fetchval(sql, timeout=10)
        finally:
            await connection.close()

    async def applied(self, count: int) -> None:
        """Wait until so many transfers have been applied."""

        async def enough() -> bool:
            sql = "select count(*) from bank.transfers"
            return int(await self.query(self.bank_url, sql)) >= count

        trouble = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError)
        await wait_for(enough, LIMIT_S, f"{count} transfers", ignore=trouble, poll_s=0.05)

    async def limits_transactions(self) -> bool:
        """Whether PostgreSQL ends every transaction that takes too long: since version 17."""
        sql = "select current_setting('transaction_timeout', true) is not null"
        return bool(await self.query(self.bank_url, sql))

    async def freeze(self, worker: Child) -> None:
        """Freeze a worker while it holds attempts."""

        async def holding() -> bool:
            worker.pause()
            waiting = await call(
                self._redis, "XPENDING", keys.tasks("default"), keys.WORKERS_GROUP, timeout_s=10
            )
            if any(f"-{worker.pid}-" in name.decode() for name, _ in waiting[3] or ()):
                return True
            worker.resume()
            return False

        await wait_for(holding, LIMIT_S, "a worker holds attempts")

    async def lost(self, worker: Child) -> None:
        """Wait until attempts of this worker have been given up."""

        async def some() -> bool:
            sql = (
                "select count(*) from runs where outcome = 'lost' "
                f"and worker like '%-{worker.pid}-%'"
            )
            return int(await self.query(self._servers.database_url, sql)) > 0

        await wait_for(some, LIMIT_S, "attempts of a worker are lost", poll_s=0.05)


@pytest.fixture
async def bank(
    make_servers: ServerFactory, processes: Processes, tmp_path: Path
) -> AsyncIterator[Bank]:
    made = Bank(make_servers(), processes, tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_every_transfer_is_applied_once(bank: Bank) -> None:
    workers = await asyncio.gather(*(bank.worker() for _ in range(4)))
    script = bank.transfers(TRANSFERS)
    await bank.applied(TRANSFERS // 10)
    early, late, *killed = workers
    await bank.freeze(early)
    await bank.freeze(late)
    for worker in killed:
        worker.kill9()
    await asyncio.gather(bank.worker(), bank.worker())

    await bank.lost(early)
    early.resume()
    await bank.lost(late)
    if not await bank.limits_transactions():
        late.resume()  # or it might hold its locks, and all others, as long as it is frozen
    assert await asyncio.to_thread(script.wait, LIMIT_S) == 0, script.output
    assert f"{TRANSFERS} of {TRANSFERS} transfers completed, each of these applied once" in (
        script.output
    )
    late.resume()
    # They finish what they hold, or believe to hold.
    assert [await asyncio.to_thread(frozen.stop, LIMIT_S) for frozen in (early, late)] == [0, 0]

    again = bank.transfers(0)
    assert await asyncio.to_thread(again.wait, LIMIT_S) == 0, again.output
    assert f"{TRANSFERS} of {TRANSFERS} transfers completed" in again.output
    assert await bank.query(bank.bank_url, "select count(*) from bank.transfers") == TRANSFERS
    assert await bank.query(bank.bank_url, "select count(*) from bank.duly_effects") == TRANSFERS
