"""A real node on several stores, inside the test's own process; see `node_rig`, which has one store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import aiohttp
import anyio
import msgspec
from node_rig import READY_S, STOP_S, RunningNode, quick_settings
from waiting import wait_for

from duly.actors.context import Context
from duly.nodes.client import Client
from duly.nodes.node import open_contexts, tree_of_stores
from duly.nodes.server import Announce
from duly.nodes.settings import Settings
from duly.storage import stores
from duly.storage.layout import Layout, slot_of
from duly.storage.slots import SLOTS


@dataclass
class RunningStores(RunningNode):
    """A node on several stores; `context` is that of the first."""

    contexts: Sequence[Context]

    @property
    def layout(self) -> Layout:
        """Where the slots are, as the node knows it."""
        assert self.context.layout is not None
        return self.context.layout

    def store_of(self, task_id: UUID | str) -> int | None:
        """The store that has a task."""
        return self.layout.store_of(slot_of(UUID(str(task_id))))

    async def rows(self, store: int, query: str, *args: object) -> list[Any]:
        """What a query answers in one store."""

        async def work(connection: Any) -> list[Any]:
            found: list[Any] = await connection.fetch(query, *args)
            return found

        return await self.contexts[store].db.run(work)


@asynccontextmanager
async def running_stores(
    urls: Sequence[str], redis_url: str, *, owns: int = SLOTS, **settings: Any
) -> AsyncIterator[RunningStores]:
    """Run a node on these stores; waits until it owns `owns` slots, stops it in order at the end."""
    values = {"database_urls": tuple(urls), "redis_url": redis_url, **quick_settings(), **settings}
    whole = msgspec.structs.replace(Settings(), **values)
    announce = Announce(whole.host, None)
    layout = await stores.bring_up(urls)
    async with open_contexts(whole, layout) as contexts:
        supervisor = tree_of_stores(contexts, whole, announce)
        ready = anyio.Event()
        serving = asyncio.create_task(supervisor.serve(ready))
        try:
            await wait_for(
                lambda: ready.is_set() or serving.done(), READY_S, "the node has started"
            )
            assert contexts[0].clock.synced, "the API has started without a clock"
            await wait_for(lambda: owned(contexts) >= owns, READY_S, "the node owns its slots")
            async with (
                Client(announce.url) as client,
                aiohttp.ClientSession(announce.url) as http,
            ):
                yield RunningStores(
                    announce.url, contexts[0], whole, supervisor, client, http, contexts
                )
        finally:
            supervisor.request_stop()
            await asyncio.wait_for(serving, STOP_S)
    crashed = [one.name for one in supervisor.statistics() if one.restarts or one.last_error]
    assert not crashed, f"actors crashed: {crashed}"


def owned(contexts: Sequence[Context]) -> int:
    """How many slots a node holds, of all stores."""
    return sum(context.vitals.owned_slots for context in contexts)
