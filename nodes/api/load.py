"""How many tasks come due when."""

from datetime import datetime, timedelta

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.problems import FieldError, invalid
from duly.storage.load import By, due_load
from duly.wheel.durations import from_us

HOURS_MAX = 24


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


class LoadHandlers:
    """Everything under /v1/load."""

    def __init__(self, context: Context) -> None:
        self._context = context

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
        now = from_us(self._context.clock.now_us())
        since = now - timedelta(seconds=now.second, microseconds=now.microsecond)
        load = await due_load(self._context.api_db, by, since, minutes)
        series = [DueSeries(*one) for one in load.series]
        return answers.body(DueLoad(since, 60, minutes, series, load.sampled))
