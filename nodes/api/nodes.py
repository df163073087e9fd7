"""The live nodes."""

from datetime import datetime

import msgspec
from aiohttp import web

from duly.actors import node_info
from duly.actors.context import Context
from duly.nodes.api import answers, queries
from duly.nodes.api.problems import unavailable
from duly.storage.redis import TROUBLE


class NodeView(msgspec.Struct):
    """A live node, as it said at its last beat; null: its version does not say."""

    id: str
    host: str
    pid: int
    slots: int
    started_at: datetime
    tzdata: str | None
    version: str | None
    schema: int | None
    wheel_entries: int | None
    ready_entries: int | None
    lag_p99_s: float | None
    lease_age_s: float | None
    clock_offset_s: float | None
    redis: bool | None
    postgres: bool | None
    listeners: int | None


class NodeList(msgspec.Struct):
    """All live nodes, the oldest first; `next_cursor` is always null."""

    items: list[NodeView]
    next_cursor: str | None = None


class NodeHandlers:
    """Everything under /v1/nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/nodes", self.list, allow_head=False)]

    async def list(self, request: web.Request) -> web.Response:
        """The nodes that are registered in Redis now."""
        queries.known_only(request, ())
        try:
            registered = await self._context.members.registered()
        except TROUBLE as error:
            raise unavailable(
                f"Redis does not say which nodes live: {str(error) or 'no answer'}"
            ) from None
        items = []
        for name, words in registered.items():
            info = node_info.read(words)
            if info is not None:
                items.append(NodeView(name, **msgspec.structs.asdict(info)))
        return answers.body(NodeList(sorted(items, key=lambda node: (node.started_at, node.id))))
