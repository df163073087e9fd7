"""The regions that this cluster knows, and what waits here for them."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.access import caller
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.problems import FieldError, invalid, not_found
from duly.nodes.api.replies import TaskPage
from duly.nodes.regions.directory import Regions
from duly.nodes.setting_values import REGION
from duly.storage import forwarding
from duly.storage.forwarding import State

_STATES: Final[Mapping[str, State]] = {"waiting": "waiting", "refused": "refused"}


class RegionView(msgspec.Struct):
    """A region, and what waits here to be handed to it. `waiting`, `refused`: up to 100,000.

    `configured` false: tasks wait for a region that the settings do not name any more.
    """

    name: str
    own: bool
    configured: bool
    url: str | None
    waiting: int
    refused: int
    oldest: datetime | None
    """When the first of those was submitted that wait."""
    failing_since: datetime | None
    error: str | None


class RegionList(msgspec.Struct):
    """The regions, this cluster's own first."""

    items: list[RegionView]


class OutboxHandlers:
    """GET /v1/regions and /v1/regions/{region}/outbox."""

    def __init__(self, context: Context, regions: Regions, outbox: Forwarding) -> None:
        self._db = context.api_db
        self._regions = regions
        self._outbox = outbox

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/v1/regions", self.list, allow_head=False),
            web.get("/v1/regions/{region}/outbox", self.outbox, allow_head=False),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """All of them."""
        queries.known_only(request, ())
        depths = await forwarding.depths(self._db)
        heads = {head.region: head for head in await forwarding.heads(self._db)}
        left = {region for region, _ in depths} - set(self._regions.known)
        items = []
        for name in [*self._regions.known, *sorted(left)]:
            other, head = self._regions.others.get(name), heads.get(name)
            items.append(
                RegionView(
                    name=name,
                    own=name == self._regions.own,
                    configured=name in self._regions.known,
                    url=None if other is None else other.url,
                    waiting=depths.get((name, "waiting"), 0),
                    refused=depths.get((name, "refused"), 0),
                    oldest=None if head is None else head.accepted_at,
                    failing_since=None if head is None else head.failing_since,
                    error=None if head is None else head.error,
                )
            )
        return answers.body(RegionList(items))

    async def outbox(self, request: web.Request) -> web.Response:
        """A page of what waits for a region, or was refused by it, in the order of submission."""
        queries.known_only(request, ("state", "limit", "cursor"))
        asked, limit = request.query.get("state", "waiting"), queries.limit(request)
        state = _STATES.get(asked)
        if state is None:
            raise invalid(FieldError("state", f"must be one of {', '.join(_STATES)}"))
        after = queries.alert_cursor(request) or 0
        region = request.match_info["region"]
        if not re.fullmatch(REGION, region):
            raise not_found(f"region {region}")
        rows = await forwarding.listing(self._db, region, state, after, limit + 1)
        more = queries.encode_cursor(rows[limit - 1].seq) if len(rows) > limit else None
        payloads = caller().may("payload-view")
        items = [self._outbox.view(row, payloads=payloads) for row in rows[:limit]]
        return answers.body(TaskPage(items, more))
