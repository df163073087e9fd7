"""The routes about tasks, where there are several stores."""

from collections.abc import Sequence

from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api.explain import ExplainHandlers
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.stores import lists, whole
from duly.nodes.api.stores.bulk import StoresBulkHandlers
from duly.nodes.api.stores.placing import StoresSubmitHandlers
from duly.nodes.api.stores.routing import Stores, routed
from duly.nodes.settings import Settings


class Several:
    """The parts that a cluster of several stores has in the place of those of one."""

    def __init__(self, contexts: Sequence[Context], outbox: Forwarding, settings: Settings) -> None:
        """`outbox`: it has nothing here, since several stores and regions do not go together."""
        self._outbox = outbox
        self._stores = Stores(contexts)
        self._settings = settings
        self.health = whole.StoresHealthHandlers(self._stores)
        self.counts = whole.StoresTaskCounts(self._stores)

    def routes(self) -> list[web.RouteDef]:
        """The routes of all of them."""
        stores, payload_limit = self._stores, self._settings.payload_limit_bytes
        contexts, first = stores.contexts, stores.contexts[0]
        each = (
            [lists.StoresTaskHandlers(stores, one, payload_limit) for one in contexts],
            [whole.StoresWorkerHandlers(stores, at) for at in range(len(contexts))],
            [lists.StoresLedgerHandlers(stores, one) for one in contexts],
            [ExplainHandlers(one) for one in contexts],
        )
        found = [
            route for parts in each for route in routed(stores, [part.routes() for part in parts])
        ]
        for part in (
            StoresSubmitHandlers(stores, self._outbox, payload_limit, self._settings.batch_limit),
            lists.StoresAuditHandlers(stores),
            lists.StoresAlertHandlers(stores),
            lists.StoresClusterHandlers(stores),
            lists.StoresLoadHandlers(stores),
            StoresBulkHandlers(stores),
            whole.StoresQueueHandlers(first, self.counts),
        ):
            found += part.routes()
        return found
