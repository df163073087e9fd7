"""kill -9 of the node that takes and hands on tasks of another region: none is lost, none is doubled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web
from databases import Databases
from fake_region import fake_region
from node_rig import running_node
from private_valkey import several
from processes import Processes
from region_rig import free_port
from waiting import wait_for

from duly.nodes.client import Client
from duly.nodes.regions.messages import FORWARDED_BY

pytestmark = pytest.mark.chaos

_LIMIT_S = 120.0
_TASKS = [{"type": "t", "delay": 3600, "payload": n, "region": "eu"} for n in range(40)]


class Us:
    """A cluster whose nodes are processes."""

    def __init__(self, database: str, redis: str, region: str, processes: Processes) -> None:
        self.database = database
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._processes = processes
        self._environment = {
            "DULY_DATABASE_URL": database, "DULY_REDIS_URL": redis, "DULY_REGION": "us",
            "DULY_REGIONS": f"eu={region}", "DULY_PORT": str(self.port),
        }  # fmt: skip
        self.node = self.start()

    def start(self) -> Any:
        """Start a node in the place of the one before."""
        self.node = self._processes.python("-m", "duly", "node", env=self._environment)
        return self.node

    async def submit(self) -> list[str]:
        """Their ids, once a node has taken them."""
        async with Client(self.url) as client:

            async def taken() -> list[Any]:
                return await client.submit_batch(_TASKS)

            ids = await wait_for(taken, _LIMIT_S, "the node takes tasks", ignore=(Exception,))
        return [str(one) for one in ids]

    async def count(self, where: str) -> int:
        """How many tasks of other regions are like this."""
        connection = await asyncpg.connect(self.database)
        try:
            found: int = await connection.fetchval(f"select count(*) from forwarded where {where}")
        finally:
            await connection.close()
        return found

    async def all_delivered(self, count: int) -> None:
        """Wait until so many are."""

        async def look() -> bool:
            return await self.count("state = 'delivered'") == count

        await wait_for(look, _LIMIT_S, "all are delivered")


class HoldingLink:
    """Before a region: hands requests on at once, and keeps the answers until it is told to pass them on."""

    def __init__(self, url: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.held = False
        self._above = url
        self._passing = asyncio.Event()

    def pass_on(self) -> None:
        """Keep no answer from now on."""
        self._passing.set()

    async def hand_on(self, request: web.Request) -> web.Response:
        """One request."""
        names = ("Content-Type", FORWARDED_BY)
        headers = {name: request.headers[name] for name in names}
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self._above + request.path, data=await request.read(), headers=headers
            ) as answer,
        ):
            body = await answer.read()
        self.held = True
        await self._passing.wait()
        return web.Response(status=answer.status, body=body, content_type="application/json")


@asynccontextmanager
async def holding_link(url: str) -> AsyncIterator[HoldingLink]:
    """One that leads to `url`."""
    link = HoldingLink(url)
    app = web.Application()
    app.add_routes([web.post("/v1/forwarded", link.hand_on)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(link.url.rpartition(":")[2])).start()
    try:
        yield link
    finally:
        link.pass_on()
        await runner.cleanup()


async def test_killed_between_the_commit_and_the_delivery(
    fresh_database: str, redis_url: str, processes: Processes
) -> None:
    async with fake_region(free_port()) as region:
        us = Us(fresh_database, redis_url, region.url, processes)
        ids = await us.submit()
        us.node.kill9()
        await region.start()
        assert await us.count("state = 'waiting'") == len(ids)
        us.start()
        await us.all_delivered(len(ids))
        assert region.taken == ids


async def test_killed_after_its_region_has_stored_them(
    databases: Databases, template_url: str, redis_url: str, processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / "eu").mkdir()
    with several(tmp_path / "eu", 1) as (redis,):
        database = databases.create(template_url)
        async with running_node(database, redis.url, region="eu") as eu:
            async with holding_link(eu.url) as link:
                us = Us(databases.create(template_url), redis_url, link.url, processes)
                ids = await us.submit()
                await wait_for(lambda: link.held, _LIMIT_S, "its region has stored them")
                us.node.kill9()
                link.pass_on()
                assert await us.count("sent and state = 'waiting'") > 0
                us.start()
                await us.all_delivered(len(ids))
            assert await eu.count() == len(ids)
            assert {str(task.id) async for task in eu.client.list()} == set(ids)
