"""Liveness and readiness. Alive = this process answers; ready = it can accept, and fires."""

import asyncio
import time
from datetime import datetime

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.actors.troubles import Troubles
from duly.nodes.api.access import caller
from duly.storage import upkeep
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us

_PROBE_S = 2.0


class Failing(msgspec.Struct):
    """One kind of work that fails now; `since` on the cluster's clock."""

    since: datetime
    detail: str


class Part(msgspec.Struct):
    """One part of a node. `failing`: which work, since when and why."""

    ok: bool
    detail: str | None = None
    failing: dict[str, Failing] = {}


class Readiness(msgspec.Struct):
    """`ready` is false if any part but `queues` and single stores is not ok.

    A load balancer may still send submissions then. A stranger is not told the node's name (null) and
    details, which may name hosts and users.
    """

    ready: bool
    node: str | None
    parts: dict[str, Part]


class HealthHandlers:
    """healthz and readyz; open to everyone."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing: asyncio.Task[str | None] | None = None

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/healthz", self.healthz, allow_head=False),
            web.get("/readyz", self.readyz, allow_head=False),
        ]

    async def healthz(self, _: web.Request) -> web.Response:
        """200 as long as the event loop turns."""
        return web.json_response({"ok": True})

    async def readyz(self, _: web.Request) -> web.Response:
        """200 if every part works, else 503 naming those that do not, and since when."""
        body = await self.readiness()
        if not caller().may("read"):
            body = Readiness(
                body.ready, None, {name: Part(part.ok) for name, part in body.parts.items()}
            )
        return web.Response(
            status=200 if body.ready else 503,
            body=msgspec.json.encode(body),
            content_type="application/json",
            headers={} if body.ready else {"Retry-After": "1"},
        )

    async def readiness(self) -> Readiness:
        """Ask every part, at most two seconds."""
        postgres, (redis, primaries) = await asyncio.gather(self.postgres(), self.redis())
        parts = {"postgres": postgres, "redis": redis, "slots": self.slots()}
        ready = all(part.ok for part in parts.values())
        parts["queues"] = self.queues()  # one that fails is no reason to avoid this node
        if primaries is not None:
            parts["primaries"] = primaries  # the queues of the others go on
        parts |= await self.stores()
        return Readiness(ready, self._context.node_id, parts)

    async def stores(self) -> dict[str, Part]:
        """Parts of their own for stores, if there are several; that one fails is no reason to avoid this node."""
        return {}

    async def postgres(self) -> Part:
        """Not by the API's own pool: used up by submissions, it says nothing of the server.

        A write, since reads say nothing of a standby or a full disk; one at a time, since a commit
        that waits for a standby keeps its connection.
        """
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._try_write())
        done, _ = await asyncio.wait({self._writing}, timeout=_PROBE_S)
        detail = self._writing.result() if done else "no answer to a write"
        return Part(not detail, detail, self._failing(self._context.vitals.postgres))

    async def _try_write(self) -> str | None:
        """Why it cannot be written."""
        try:
            await upkeep.try_write(self._context.db)
        except StoreUnavailableError as error:
            return str(error)
        return None

    async def redis(self) -> tuple[Part, Part | None]:
        """Whether Redis takes writes, and all that has failed works again; and the primaries of a cluster.

        The first is so of a cluster as long as one of its primaries takes writes.
        """
        away: dict[str, str] = {}
        try:
            async with asyncio.timeout(_PROBE_S):
                away = await self._context.streams.probe()
        except TROUBLE as error:
            detail = str(error) or "no answer"
        else:
            detail = ""
        failing = self._failing(self._context.vitals.redis)
        if not detail and failing:
            detail = "it answers, but not everything works again yet"
        part = Part(not detail, detail or None, failing)
        if not self._context.streams.is_cluster:
            return part, None
        said = "; ".join(away.values()) or None
        return part, Part(not away and not detail, said or detail or None)

    def slots(self) -> Part:
        """Whether it fires."""
        vitals, clock = self._context.vitals, self._context.clock
        if vitals.owned_slots and clock.monotonic() < vitals.lease_valid_until:
            return Part(True, f"owns {vitals.owned_slots}")
        return Part(False, "owns no slot: fires nothing")

    def queues(self) -> Part:
        """Whether the keys of all queues can be used."""
        failing = self._failing(self._context.vitals.queues)
        return Part(not failing, "keys of some queues are unusable" if failing else None, failing)

    def _failing(self, board: Troubles) -> dict[str, Failing]:
        now_us, now_s = self._context.clock.now_us(), time.monotonic()
        return {
            work: Failing(from_us(now_us - round((now_s - one.since) * 1e6)), one.detail)
            for work, one in board.now.items()
        }
