"""What went silent, and what was paused after too many failures."""

import builtins

from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.replies import AlertPage
from duly.nodes.api.views import alert
from duly.storage import alerts


class AlertHandlers:
    """GET /v1/alerts."""

    def __init__(self, context: Context) -> None:
        self._db = context.api_db

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/alerts", self.list, allow_head=False)]

    async def list(self, request: web.Request) -> web.Response:
        """A page of alerts, newest first."""
        queries.known_only(request, ("open", "task_id", "limit", "cursor"))
        limit = queries.limit(request)
        where = alerts.Filter(
            queries.flag(request.query, "open"), queries.uuid(request.query, "task_id")
        )
        before = queries.alert_cursor(request)
        rows = await self._rows(where, before, limit + 1)
        more = queries.encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
        return answers.body(AlertPage([alert(row) for row in rows[:limit]], more))

    async def _rows(
        self, where: alerts.Filter, before: int | None, limit: int
    ) -> builtins.list[alerts.Alert]:
        return await alerts.listing(self._db, where, before, limit)
