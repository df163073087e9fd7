"""What Prometheus reads of a node: which parts work, what it owns, and what it has done.

Names follow the Prometheus conventions (unit last, `_total` for counters). Nothing is kept for the
sake of a scrape: it reads what the actors count anyway, and asks the parts as `readyz` does.
"""

from collections.abc import Iterable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from duly.actors.context import Context
from duly.nodes.api.health import HealthHandlers, Readiness


class MetricsHandlers:
    """Serves metrics; with tokens set it needs the role read."""

    def __init__(self, context: Context, health: HealthHandlers) -> None:
        self._context = context
        self._health = health

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/metrics", self.get, allow_head=False)]

    async def get(self, request: web.Request) -> web.Response:
        """The text format, or OpenMetrics for a scraper that asks for it."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Node(self._context, await self._health.readiness()))
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})


class _Node(Collector):
    """The state of this node at the time of one scrape."""

    def __init__(self, context: Context, readiness: Readiness) -> None:
        self._context = context
        self._readiness = readiness

    def collect(self) -> Iterable[Metric]:
        yield self._parts()
        yield from self._gauges()
        yield from self._counters()

    def _parts(self) -> Metric:
        up = GaugeMetricFamily("duly_up", "1 if this part of the node works", labels=["part"])
        for name, part in self._readiness.parts.items():
            up.add_metric([name], float(part.ok))
        return up

    def _gauges(self) -> Iterator[Metric]:
        vitals = self._context.vitals
        for name, value, text in (
            ("owned_slots", vitals.owned_slots, "Slots whose lease this node holds"),
            ("wheel_entries", vitals.wheel_entries, "Tasks in the timing wheel"),
            ("ready_entries", vitals.ready_entries, "Due tasks that wait for room in a stream"),
        ):
            yield GaugeMetricFamily(f"duly_{name}", text, value=value)
        connections = GaugeMetricFamily(
            "duly_database_connections", "Connections to PostgreSQL", labels=["pool"]
        )
        for pool, db in (("core", self._context.db), ("api", self._context.api_db)):
            connections.add_metric([pool], db.connections)
        yield connections
        depth = GaugeMetricFamily(
            "duly_mailbox_depth", "Messages that wait in an actor's mailbox", labels=["actor"]
        )
        for name, box in vars(self._context.boxes).items():
            depth.add_metric([name], box.depth)
        yield depth

    def _counters(self) -> Iterator[Metric]:
        vitals = self._context.vitals
        for name, value, text in (
            ("claimed", vitals.claimed, "Tasks claimed by this node"),
            ("recorded", vitals.recorded, "Outcomes recorded by this node"),
            ("stale_reports", vitals.stale_reports, "Reports whose token was not the row's"),
            ("lost", vitals.lost, "Attempts whose worker was lost"),
            ("timed_out", vitals.timed_out, "Attempts that had their time"),
            ("republished", vitals.republished, "Tasks that were in no stream, published again"),
        ):
            yield CounterMetricFamily(f"duly_{name}", text, value=value)
