"""How many tasks come due when, looked up at most every few seconds however many ask."""

import asyncio
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.problems import FieldError, invalid
from duly.storage.load import By, Load, due_load
from duly.wheel.durations import from_us

HOURS_MAX = 24

_EVERY_S = 10.0
_OLD_S = 50.0


class DueSeries(msgspec.Struct):
    """Tasks due in each minute of one queue or type; a null name stands for all that are not named."""

    name: str | None
    counts: list[int]


class DueLoad(msgspec.Struct):
    """Tasks due in each step from `from` on.

    `sampled` is the share of the tasks that was looked at: below 1 the counts are estimates.
    """

    since: datetime = msgspec.field(name="from")
    step_s: int
    minutes: int
    series: list[DueSeries]
    sampled: float


class _Known(NamedTuple):
    load: DueLoad
    again_at: float


class LoadHandlers:
    """Everything under /v1/load."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[By, int], _Known] = {}
        self._asking: dict[tuple[By, int], asyncio.Task[DueLoad]] = {}

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/load", self.get, allow_head=False)]

    async def get(self, request: web.Request) -> web.Response:
        """Tasks due in each minute of the next hours, by queue or type."""
        queries.known_only(request, ("by", "hours"))
        name = request.query.get("by", "queue")
        if name not in ("queue", "type"):
            raise invalid(FieldError("by", "must be queue or type"))
        by: By = "type" if name == "type" else "queue"
        minutes = 60 * queries.whole(request, "hours", HOURS_MAX, HOURS_MAX)
        return answers.body(await self._load(by, minutes))

    async def _load(self, by: By, minutes: int) -> DueLoad:
        """Some seconds old perhaps: whoever asks after those has the next one made, and need not wait for it."""
        key = by, minutes
        now = self._context.clock.monotonic()
        known, asking = self._known.get(key), self._asking.get(key)
        if known is not None and now < known.again_at:
            return known.load
        if asking is None or asking.done():
            asking = self._asking[key] = asyncio.create_task(self._ask(by, minutes))
            asking.add_done_callback(_look_at)
        if known is not None and now < known.again_at + _OLD_S:
            return known.load
        return await asyncio.shield(asking)

    async def _ask(self, by: By, minutes: int) -> DueLoad:
        clock = self._context.clock
        now = from_us(clock.now_us())
        since = now - timedelta(seconds=now.second, microseconds=now.microsecond)
        found = await self._count(by, since, minutes)
        series = [DueSeries(*one) for one in found.series]
        load = DueLoad(since, 60, minutes, series, found.sampled)
        self._known[by, minutes] = _Known(load, clock.monotonic() + _EVERY_S)
        return load

    async def _count(self, by: By, since: datetime, minutes: int) -> Load:
        context = self._context
        return await due_load(context.api_db, by, since, minutes, sorted(context.slots))


def _look_at(asked: asyncio.Task[DueLoad]) -> None:
    """What went wrong is told to who waits; where nobody does, to who asks once the old one is too old."""
    if not asked.cancelled():
        asked.exception()
