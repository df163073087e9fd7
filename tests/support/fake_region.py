"""A region that answers as a test wants: takes what it is handed, refuses, loses its answers, goes away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class FakeRegion:
    """`taken` has the ids that it has taken, in order, each once, as a region does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._runner: web.AppRunner | None = None
        self.taken: list[str] = []
        self.requests: list[list[str]] = []
        """The ids in each request."""
        self.before: Callable[[list[str]], web.Response | None] = lambda _: None
        """May answer in its stead, before anything is taken."""
        self.loses = False
        """Whether answers are lost: the connection is cut once all is taken."""

    @property
    def url(self) -> str:
        """Where it listens, if it does."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=1 << 28)
        app.add_routes([web.post("/v1/forwarded", self._take)])
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Refuse connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _take(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        ids = [one["id"] for one in body["tasks"]]
        self.requests.append(ids)
        if (answer := self.before(ids)) is not None:
            return answer
        self.taken += [one for one in ids if one not in self.taken]
        if self.loses:
            assert isinstance(request.transport, asyncio.Transport)
            request.transport.abort()
        return web.json_response({"answers": [_verdict(one) for one in ids]})


def _verdict(task_id: str) -> dict[str, Any]:
    task = {"id": task_id, "version": 0, "next_run_at": None}
    return {"status": 201, "task_id": task_id, "task": task}


def refuse(status: int, detail: str = "no") -> web.Response:
    """A problem."""
    text = json.dumps({"status": status, "detail": detail})
    return web.Response(status=status, text=text, content_type="application/problem+json")


@asynccontextmanager
async def fake_region(port: int) -> AsyncIterator[FakeRegion]:
    """Not started yet; stopped at the end."""
    region = FakeRegion(port)
    try:
        yield region
    finally:
        await region.stop()
