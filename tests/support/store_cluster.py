"""Nodes as processes on two PostgreSQL servers, to be killed; and tasks that are submitted all the while."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import asyncpg
from processes import Child, Processes
from waiting import wait_for

from duly.nodes.embedded import EmbeddedServers
from duly.storage.layout import slot_of

_QUICK = {
    "DULY_LEASE_TTL_S": "2",
    "DULY_LEASE_RENEW_S": "0.25",
    "DULY_DISPATCH_GRACE_S": "2",
    "DULY_DB_STATEMENT_TIMEOUT_S": "2",
    "DULY_REDIS_TIMEOUT_S": "1",
    "DULY_LOG_LEVEL": "info",
}
_CALL = aiohttp.ClientTimeout(total=15)
_TROUBLE = (OSError, aiohttp.ClientError, asyncpg.PostgresError, asyncpg.InterfaceError)


def an_id(slots: Sequence[int]) -> str:
    """A new id of a task in one of these slots."""
    while slot_of(one := uuid4()) not in slots:
        pass
    return str(one)


class StoreCluster:
    """`servers`: of each store one; the first one's Redis is everybody's."""

    def __init__(
        self, servers: Sequence[EmbeddedServers], processes: Processes, count: int = 3
    ) -> None:
        self.servers = servers
        self.urls = [one.database_url for one in servers]
        self.redis_url = servers[0].redis_url
        self._processes = processes
        self.environment = {
            **_QUICK,
            "DULY_DATABASE_URLS": ",".join(self.urls),
            "DULY_REDIS_URL": self.redis_url,
        }
        self.ports = [_free_port() for _ in range(count)]
        self.nodes = [self.start_node(at) for at in range(count)]

    def start_node(self, at: int) -> Child:
        """Start `duly node` number `at`."""
        env = {**self.environment, "DULY_PORT": str(self.ports[at])}
        return self._processes.python("-m", "duly", "node", env=env)

    def command(self, *words: str) -> Child:
        """Start the command `duly`."""
        return self._processes.python("-m", "duly", *words, env=self.environment)

    async def call(
        self, session: aiohttp.ClientSession, method: str, path: str, body: object = None
    ) -> tuple[int, Any]:
        """What a live node answers."""
        port = next(
            port
            for port, node in zip(self.ports, self.nodes, strict=True)
            if node.exit_code is None
        )
        url = f"http://127.0.0.1:{port}{path}"
        async with session.request(method, url, json=body, timeout=_CALL) as answer:
            return answer.status, await answer.json()

    async def all_owned(self, session: aiohttp.ClientSession, nodes: int) -> None:
        """Wait until so many nodes own all slots of both stores."""

        async def owned() -> bool:
            _, slots = await self.call(session, "GET", "/v1/slots")
            owners = {slot["owner"] for slot in slots["items"]}
            processes = {owner.partition("/")[0] for owner in owners if owner}
            return len(slots["items"]) == 256 and None not in owners and len(processes) == nodes

        await wait_for(
            owned,
            90,
            "all slots are owned",
            ignore=(*_TROUBLE, KeyError, AttributeError),
            poll_s=0.2,
        )

    async def submit(self, session: aiohttp.ClientSession, task_id: str, **fields: Any) -> None:
        """Submit a task as often as it takes."""
        sent = False

        async def stored() -> bool:
            nonlocal sent
            body = {"id": task_id, "type": "t", **fields}
            repeated, sent = sent, True
            status, _ = await self.call(session, "POST", "/v1/tasks", body)
            assert status in (201, 503) or (repeated and status == 409), status
            return status != 503

        await wait_for(stored, 120, "a task is accepted", ignore=_TROUBLE, poll_s=0.1)

    async def completed(self, ids: Sequence[str], within_s: float = 120.0) -> None:
        """Wait until all of these are completed, and look that each is so in one store, once."""

        async def found() -> bool:
            return len(await self._rows("select id from finished_tasks", ids)) >= len(ids)

        await wait_for(found, within_s, "all tasks are completed", ignore=_TROUBLE, poll_s=0.3)
        for what in (
            "select id from finished_tasks where status = 'completed'",
            "select task_id as id from runs where outcome = 'completed'",
        ):
            assert sorted(await self._rows(what, ids)) == sorted(ids)
        assert not await self._rows("select id from tasks", ids)

    async def _rows(self, query: str, ids: Sequence[str]) -> list[str]:
        """Those of the store that holds their slot."""
        rows: list[str] = []
        for url in self.urls:
            connection = await asyncpg.connect(url, timeout=10)
            try:
                held = {row["slot"] for row in await connection.fetch("select slot from slots")}
                found = await connection.fetch(
                    f"select * from ({query}) q where id = any($1::uuid[])", [*map(UUID, ids)]
                )
                rows += [str(row["id"]) for row in found if slot_of(UUID(str(row["id"]))) in held]
            finally:
                await connection.close()
        return rows


@asynccontextmanager
async def loading(
    cluster: StoreCluster, session: aiohttp.ClientSession, every_s: float = 0.03
) -> AsyncIterator[list[str]]:
    """Tasks are submitted one after the other, due half a second later each, until the end."""
    ids: list[str] = []
    stop = asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            one = an_id(range(256))
            await cluster.submit(session, one, delay=0.5)
            ids.append(one)
            await asyncio.sleep(every_s)

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    try:
        yield ids
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
