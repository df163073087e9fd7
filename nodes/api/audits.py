"""Who changed what."""

import builtins
from datetime import datetime

from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.replies import AuditPage
from duly.nodes.api.views import noted
from duly.storage import audit


class AuditHandlers:
    """GET /v1/audit."""

    def __init__(self, context: Context) -> None:
        self._db = context.api_db

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/audit", self.list, allow_head=False)]

    async def list(self, request: web.Request) -> web.Response:
        """A page of changes, newest first."""
        names = ("who", "action", "task_id", "before", "since", "limit", "cursor")
        queries.known_only(request, names)
        limit = queries.limit(request)
        rows = await self._notes(
            queries.audit_filter(request), queries.audit_cursor(request), limit + 1
        )
        more = None
        if len(rows) > limit:
            last = rows[limit - 1]
            more = queries.encode_cursor(last.id, last.at.isoformat())
        return answers.body(AuditPage([noted(row) for row in rows[:limit]], more))

    async def _notes(
        self, where: audit.Filter, after: tuple[datetime, int] | None, limit: int
    ) -> builtins.list[audit.Noted]:
        return await audit.notes(self._db, where, after, limit)
