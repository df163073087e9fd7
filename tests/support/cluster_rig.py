"""Three nodes and two workers as real processes under a steady load, and how late its tasks were."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import asyncpg
from processes import Child, Processes
from waiting import wait_for

from duly.nodes.client import Client
from duly.nodes.embedded import EmbeddedServers
from duly.storage.slots import SLOTS

NODES = 3
_SUPPORT = Path(__file__).parent
_LIVE_EVERY_S = 0.25
_LIVE_DELAY_S = 0.5  # after submission: less than the sweep looks ahead
_WAIT_S = 120.0
_SOME = 300


class Lag(NamedTuple):
    """Of one task: when it was due (seconds since the epoch), and how much later a worker began."""

    slot: int
    due: float
    lag_s: float


def worst(lags: Sequence[Lag]) -> float:
    """The largest lag, seconds."""
    return max(one.lag_s for one in lags)


def p99(lags: Sequence[Lag]) -> float:
    """The lag that one in a hundred exceeds, seconds."""
    return sorted(one.lag_s for one in lags)[(len(lags) - 1) * 99 // 100]


class LoadedCluster:
    """Nodes 0 to 2 on one store; `settings` are `DULY_*` variables for all of them.

    `skews`: node -> by how many seconds its wall clock is wrong.
    """

    def __init__(
        self,
        servers: EmbeddedServers,
        processes: Processes,
        settings: Mapping[str, str],
        skews: Mapping[int, float] | None = None,
    ) -> None:
        self._database_url = servers.database_url
        self._processes = processes
        self._skews = skews or {}
        self._ports = [_free_port() for _ in range(NODES)]
        self._environment = {
            "DULY_DATABASE_URL": servers.database_url,
            "DULY_REDIS_URL": servers.redis_url,
            "PYTHONPATH": os.pathsep.join([str(_SUPPORT), os.environ.get("PYTHONPATH", "")]),
            **settings,
        }
        self.nodes: list[Child] = []
        self._busy: int | None = None
        self._submitted = 0

    async def start(self) -> None:
        """Start the workers and the nodes; wait until every node owns its share."""
        for _ in range(2):
            self._processes.python(
                "-m", "duly", "worker", "chaos_worker:worker", env=self._environment
            )
        self.nodes = [self._start(number) for number in range(NODES)]
        await self.shared_by(NODES)

    def _start(self, number: int) -> Child:
        variables = {**self._environment, "DULY_PORT": str(self._ports[number])}
        if number not in self._skews:
            return self._processes.python("-m", "duly", "node", env=variables)
        variables["TEST_SKEW_S"] = str(self._skews[number])
        return self._processes.python("-m", "skewed_node", env=variables)

    def restart(self, number: int) -> None:
        """Start a node again that has ended; it is a new owner."""
        self.nodes[number] = self._start(number)

    @asynccontextmanager
    async def spared(self, number: int) -> AsyncIterator[None]:
        """Submit nothing to this node for the length of the block."""
        self._busy = number
        try:
            yield
        finally:
            self._busy = None

    async def node_id(self, number: int) -> str:
        """What the node calls itself."""
        url = f"http://127.0.0.1:{self._ports[number]}/readyz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return str((await answer.json())["node"])

    async def slots_of(self, owner: str) -> set[int]:
        """The slots that PostgreSQL says are its own."""
        rows = await self.query("select slot from slots where owner = $1", owner)
        return {row["slot"] for row in rows}

    async def handed_over_after(self, moved: set[int], since: float) -> float:
        """How many seconds after `since` the last of these slots had a new owner."""
        sql = (
            "select extract(epoch from max(taken_at))::float8 as at from slots where slot = any($1)"
        )
        (row,) = await self.query(sql, sorted(moved))
        return float(row["at"]) - since

    async def shared_by(self, count: int) -> None:
        """Wait until so many nodes own all slots in equal shares."""

        async def shared() -> bool:
            rows = await self.query(
                "select count(*) n from slots where owner is not null group by owner"
            )
            shares = [row["n"] for row in rows]
            return len(shares) == count and sum(shares) == SLOTS and max(shares) - min(shares) <= 1

        trouble = (OSError, asyncpg.PostgresError)
        await wait_for(shared, _WAIT_S, f"{count} nodes share the slots", ignore=trouble)

    async def query(self, sql: str, *args: object) -> list[Any]:
        """Rows from the store."""
        connection = await asyncpg.connect(self._database_url, timeout=20)
        try:
            rows: list[Any] = await connection.fetch(sql, *args, timeout=20)
            return rows
        finally:
            await connection.close()

    # Load

    async def submit_ahead(self, per_s: int, for_s: float, begins_s: float = 3.0) -> None:
        """Submit now what falls due evenly from `begins_s` on, for `for_s` seconds."""
        first = datetime.now(UTC) + timedelta(seconds=begins_s)
        due = [first + timedelta(seconds=n / per_s) for n in range(round(per_s * for_s))]
        whens = [{"run_at": at.isoformat()} for at in due]
        for at in range(0, len(whens), 2000):
            await self._submit(0, whens[at : at + 2000])

    @asynccontextmanager
    async def live_load(self, per_s: int) -> AsyncIterator[None]:
        """Submit `per_s` tasks a second, due half a second later, for the length of the block."""
        stop = asyncio.Event()
        load = asyncio.create_task(self._keep_submitting(per_s, stop))
        try:
            yield
        finally:
            stop.set()
            await load

    async def _keep_submitting(self, per_s: int, stop: asyncio.Event) -> None:
        count, number = round(per_s * _LIVE_EVERY_S), 0
        while not stop.is_set():
            number = (number + 1) % NODES
            if number == self._busy:
                continue
            await self._submit(number, [{"delay": _LIVE_DELAY_S}] * count)
            await asyncio.sleep(_LIVE_EVERY_S)

    async def _submit(self, number: int, whens: Sequence[Mapping[str, object]]) -> None:
        async with Client(f"http://127.0.0.1:{self._ports[number]}") as client:
            await client.submit_batch(
                [{"type": "quick", "max_retries": 0, **when} for when in whens]
            )
        self._submitted += len(whens)

    async def done(self) -> int:
        """How many tasks have completed."""
        (row,) = await self.query("select count(*) n from finished_tasks")
        return int(row["n"])

    async def some_done(self) -> bool:
        """Whether a good number has completed."""
        return await self.done() >= _SOME

    async def all_done(self) -> list[Lag]:
        """Wait until every task has completed once; how late each was."""

        async def all_are() -> bool:
            return await self.done() >= self._submitted

        await wait_for(all_are, _WAIT_S, "every task has ended", poll_s=0.2)
        rows = await self.query(
            "select t.slot, extract(epoch from r.occurrence)::float8 due, "
            "extract(epoch from r.started_at - r.occurrence)::float8 lag "
            "from runs r join finished_tasks t on t.id = r.task_id where r.outcome = 'completed'"
        )
        assert len(rows) == self._submitted, "each completed once"
        return [Lag(*row) for row in rows]


def now() -> float:
    """Seconds since the epoch."""
    return time.time()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
