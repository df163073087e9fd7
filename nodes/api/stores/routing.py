"""What is about one task goes to the handler of the store that has it."""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web
from aiohttp.typedefs import Handler

from duly.actors.context import Context
from duly.nodes.api import queries
from duly.nodes.api.problems import unavailable
from duly.storage.layout import slot_of

_ONE_TASK = "/v1/tasks/{id}"


class Stores:
    """The stores of a cluster, each with its context."""

    def __init__(self, contexts: Sequence[Context]) -> None:
        layout = contexts[0].layout
        assert layout is not None
        self.contexts = contexts
        self.layout = layout

    def of_slot(self, slot: int) -> int:
        """The number of the store that has a slot. Raises `Problem` 503 while it moves."""
        store = self.layout.store_of(slot)
        if store is None:
            raise unavailable(f"slot {slot} is on its way to another store, or its store is away")
        return store

    def of(self, task_id: UUID) -> int:
        """The number of the store that has a task, if any has. Raises `Problem` 503 while it moves."""
        return self.of_slot(slot_of(task_id))

    @property
    def answering(self) -> list[int]:
        """The stores that are not known to be away; all, if none is left."""
        everyone = range(len(self.contexts))
        return [at for at in everyone if not self.contexts[at].vitals.postgres.now] or [*everyone]


def routed(stores: Stores, parts: Sequence[Sequence[web.RouteDef]]) -> list[web.RouteDef]:
    """The routes of the first store's part; those of one task lead to its store. `parts`: of each store."""
    return [
        _by_task(stores, same) if same[0].path.startswith(_ONE_TASK) else same[0]
        for same in zip(*parts, strict=True)
    ]


def _by_task(stores: Stores, same: Sequence[web.RouteDef]) -> web.RouteDef:
    handlers: list[Handler] = [one.handler for one in same]

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handlers[stores.of(queries.task_id(request))](request)

    first = same[0]
    return web.RouteDef(first.method, first.path, handle, first.kwargs)
