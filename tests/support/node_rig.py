"""A real node inside the test's own process: its whole tree, on the servers that the test names.

The test may look into the node's context, and reach it as users do: `node.client`, or `node.http` for
requests that the client would never send.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
import anyio
import msgspec
from waiting import wait_for

from duly.actors.context import Context
from duly.actors.runtime import Supervisor
from duly.nodes.client import Client, Task
from duly.nodes.node import open_context, tree
from duly.nodes.server import Announce
from duly.nodes.settings import Settings
from duly.nodes.tls import certificate
from duly.storage.slots import SLOTS

READY_S = 60.0
STOP_S = 60.0
_QUICK: dict[str, Any] = {
    "port": 0,
    "lease_ttl_s": 2.0,
    "lease_renew_s": 0.25,
    "sweep_every_s": 0.1,
    "dispatch_grace_s": 2.0,
    "stop_grace_s": 2.0,
}


def quick_settings() -> dict[str, Any]:
    """Those with which nodes of tests notice sooner what happens."""
    return dict(_QUICK)


class Answer(NamedTuple):
    """What the API answered; `body` is decoded if it is JSON."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def fields(self) -> list[str]:
        """The fields that a problem names."""
        return [error["field"] for error in self.body.get("errors", [])]


@dataclass
class RunningNode:
    """A node that has started and owns its slots."""

    url: str
    """Where its API is, without a slash at the end."""
    context: Context
    settings: Settings
    supervisor: Supervisor
    client: Client
    http: aiohttp.ClientSession
    """For requests of any kind; takes paths such as `/v1/tasks`."""

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Answer":
        """Send a request as it is; a `body` that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = io.BytesIO(data) if body is not None else None
        kind = {} if body is None else {"Content-Type": "application/json"}
        async with self.http.request(
            method, path, data=sent, headers={**kind, **(headers or {})}
        ) as answer:
            text = await answer.text()
            is_json = answer.content_type.endswith("json")
            return Answer(answer.status, json.loads(text) if is_json else text, answer.headers)

    async def ready(self, headers: Mapping[str, str] | None = None) -> Answer:
        """What `/readyz` answers once it is content: on a busy machine a call may fail in between."""

        async def look() -> Answer | None:
            answer = await self.call("GET", "/readyz", None, headers)
            return answer if answer.status == 200 else None

        return await wait_for(look, READY_S, "the node is ready")

    async def running_task(self, task_type: str = "t", **options: Any) -> Task:
        """A task that has been claimed; there is no worker, unless the test started one."""
        task_id = (await self.client.submit(task_type, **options)).id

        async def claimed() -> Task | None:
            task = await self.client.get(task_id)
            return task if task.status == "running" else None

        return await wait_for(claimed, 60, "the task is claimed")

    async def count(self, table: str = "tasks") -> int:
        """Rows in a table of the store."""

        async def work(connection: Any) -> int:
            number: int = await connection.fetchval(f"select count(*) from {table}")
            return number

        return await self.context.db.run(work)


@asynccontextmanager
async def running_node(
    database_url: str,
    redis_url: str,
    *,
    owns_slots: bool = True,
    may_crash: bool = False,
    token: str | None = None,
    **settings: Any,
) -> AsyncIterator[RunningNode]:
    """Run a node on a migrated database; waits until it owns all slots, stops it in order at the end.

    `owns_slots=False`: do not wait for slots, as for a second node beside the first.
    `may_crash=False`: an actor's crash fails the test, also if a restart mended it.
    `token`: what `client` and `http` present. `settings`: as in `Settings`; quick defaults.
    """
    values = {"database_url": database_url, "redis_url": redis_url, **_QUICK, **settings}
    whole = msgspec.structs.replace(Settings(), **values)
    announce = Announce(whole.host, certificate(whole))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with open_context(whole) as context:
        supervisor = tree(context, whole, announce)
        ready = anyio.Event()
        # A task, not a task group: what fails in the test's body stays a plain exception.
        serving = asyncio.create_task(supervisor.serve(ready))
        try:
            await wait_for(
                lambda: ready.is_set() or serving.done(), READY_S, "the node has started"
            )
            if owns_slots:
                await wait_for(
                    lambda: context.vitals.owned_slots == SLOTS, READY_S, "the node owns its slots"
                )
            async with (
                Client(announce.url, token) as client,
                aiohttp.ClientSession(announce.url, headers=headers) as http,
            ):
                yield RunningNode(announce.url, context, whole, supervisor, client, http)
        finally:
            supervisor.request_stop()
            await asyncio.wait_for(serving, STOP_S)
    crashed = [one.name for one in supervisor.statistics() if one.restarts or one.last_error]
    assert may_crash or not crashed, f"actors crashed: {crashed}"
