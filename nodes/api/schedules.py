"""Trying a schedule out before it is submitted."""

import re
from datetime import datetime

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.problems import FieldError, invalid
from duly.wheel import schedule
from duly.wheel.durations import from_us
from duly.wheel.preview import COUNT_MAX, preview
from duly.wheel.schedule_fields import ScheduleError
from duly.wheel.zones import VERSION

PARAMETERS = ("cron", "every", "timezone", "start_at", "after", "count")
_COUNT = 10
_SECONDS = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")


class SchedulePreview(msgspec.Struct):
    """The next fire times of a schedule, and remarks on them for people."""

    fire_times: list[datetime]
    notes: list[str]


class ScheduleHandlers:
    """Everything under /v1/schedules."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/schedules/preview", self.preview, allow_head=False)]

    async def preview(self, request: web.Request) -> web.Response:
        """The next fire times, computed as the nodes compute them."""
        queries.known_only(request, PARAMETERS)
        count = queries.whole(request, "count", _COUNT, COUNT_MAX)
        after = queries.instant(request.query, "after") or from_us(self._context.clock.now_us())
        names = ("cron", "every", "timezone", "start_at")
        body: dict[str, object] = {n: request.query[n] for n in names if n in request.query}
        every = request.query.get("every")
        if every is not None and _SECONDS.fullmatch(every):
            body["every"] = float(every)
        try:
            found = preview(schedule.parse(body, after), after, count)
        except ScheduleError as error:
            raise invalid(FieldError(error.field or "cron", error.message)) from None
        versions = self._context.zone_versions
        if versions.differ and "cron" in body:
            found.notes.append(
                f"nodes have different time zone data ({', '.join(versions.known)}); "
                f"these times are by {VERSION}"
            )
        return answers.body(SchedulePreview(found.fire_times, found.notes))
