"""What Prometheus reads of a node: which parts work, what it owns, and what it has done.

Names follow the Prometheus conventions (unit last, `_total` for counters). A scrape reads what the
actors count anyway (see `exposition`), and asks the parts as `readyz` does.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from duly.actors.context import Context
from duly.nodes.api import exposition
from duly.nodes.api.health import HealthHandlers, Readiness
from duly.nodes.api.task_counts import Counted, TaskCounts
from duly.nodes.regions.directory import Regions
from duly.storage.upkeep import ARCHIVED
from duly.wheel.durations import to_us


class MetricsHandlers:
    """Serves metrics; with tokens set it needs the role read."""

    def __init__(
        self,
        contexts: Sequence[Context],
        health: HealthHandlers,
        counts: TaskCounts,
        regions: Regions,
    ) -> None:
        """`contexts`: of each store."""
        self._contexts = contexts
        self._regions = regions
        self._health = health
        self._counts = counts

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/metrics", self.get, allow_head=False)]

    async def get(self, request: web.Request) -> web.Response:
        """The text format, or OpenMetrics for a scraper that asks for it."""
        registry = CollectorRegistry(auto_describe=False)
        readiness, counted = await asyncio.gather(self._health.readiness(), self._counts.get())
        registry.register(_Node(self._contexts, readiness, counted))
        registry.register(_Outbox(self._regions, self._contexts[0].clock.now_us()))
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})


class _Outbox(Collector):
    """What waits for other regions, the same on every node; nothing where there are none."""

    def __init__(self, regions: Regions, now_us: int) -> None:
        self._regions = regions
        self._now_us = now_us

    def collect(self) -> Iterable[Metric]:
        if not self._regions.others:
            return
        depth = GaugeMetricFamily(
            "duly_outbox_tasks",
            "Tasks that wait to be handed to a region, or that it refused",
            labels=["region", "state"],
        )
        age = GaugeMetricFamily(
            "duly_outbox_age_seconds",
            "For how long the first task has waited to be handed to a region",
            labels=["region"],
        )
        for region in {*self._regions.others, *(name for name, _ in self._regions.depths)}:
            for state in ("waiting", "refused"):
                depth.add_metric([region, state], self._regions.depths.get((region, state), 0))
            oldest = self._regions.oldest.get(region)
            waited_us = 0 if oldest is None else self._now_us - to_us(oldest)
            age.add_metric([region], max(0, waited_us) / 1e6)
        yield depth
        yield age


class _Node(Collector):
    """The state of this node at the time of one scrape."""

    def __init__(
        self, contexts: Sequence[Context], readiness: Readiness, counted: Counted | None
    ) -> None:
        self._contexts = contexts
        self._readiness = readiness
        self._counted = counted

    def collect(self) -> Iterable[Metric]:
        yield self._parts()
        yield from _clock(self._contexts[0])
        yield from exposition.depths(self._counted)
        if len(self._contexts) == 1:
            yield from _of_store(self._contexts[0])
        else:
            yield from _by_store(self._contexts)

    def _parts(self) -> Metric:
        up = GaugeMetricFamily("duly_up", "1 if this part of the node works", labels=["part"])
        for name, part in self._readiness.parts.items():
            up.add_metric([name], float(part.ok))
        return up


def _of_store(context: Context) -> Iterator[Metric]:
    yield from _gauges(context)
    yield from _counters(context)
    yield from exposition.meters(context.meters, context.clock.now_us())


def _by_store(contexts: Sequence[Context]) -> Iterable[Metric]:
    """Where there are several stores, the figures of each, with its number as a label."""
    found: dict[str, Metric] = {}
    for context in contexts:
        store = {"store": str(context.store)}
        for metric in _of_store(context):
            metric.samples = [one._replace(labels=one.labels | store) for one in metric.samples]
            if metric.name in found:
                found[metric.name].samples += metric.samples
            else:
                found[metric.name] = metric
    return found.values()


def _gauges(context: Context) -> Iterator[Metric]:
    vitals = context.vitals
    for name, value, text in (
        ("owned_slots", vitals.owned_slots, "Slots whose lease this node holds"),
        ("wheel_entries", vitals.wheel_entries, "Tasks in the timing wheel"),
        ("ready_entries", vitals.ready_entries, "Due tasks that wait for room in a stream"),
    ):
        yield GaugeMetricFamily(f"duly_{name}", text, value=value)
    connections = GaugeMetricFamily(
        "duly_database_connections", "Connections to PostgreSQL", labels=["pool"]
    )
    for pool, db in (("core", context.db), ("api", context.api_db)):
        connections.add_metric([pool], db.connections)
    yield connections
    depth = GaugeMetricFamily(
        "duly_mailbox_depth", "Messages that wait in an actor's mailbox", labels=["actor"]
    )
    for name, box in vars(context.boxes).items():
        depth.add_metric([name], box.depth)
    yield depth
    alerts = GaugeMetricFamily(
        "duly_open_alerts", "Watched schedules that are silent or gave up", labels=["kind"]
    )
    for kind in ("silent", "auto_paused"):
        alerts.add_metric([kind], vitals.open_alerts.get(kind, 0))
    yield alerts
    waiting = GaugeMetricFamily(
        "duly_unexported_days",
        "Days past the retention that wait for an export",
        labels=["table"],
    )
    for table in ARCHIVED:
        waiting.add_metric([table], vitals.unexported_days.get(table, 0))
    yield waiting


def _counters(context: Context) -> Iterator[Metric]:
    vitals = context.vitals
    for name, value, text in (
        ("claimed", vitals.claimed, "Tasks claimed by this node"),
        ("recorded", vitals.recorded, "Outcomes recorded by this node"),
        ("stale_reports", vitals.stale_reports, "Reports whose token was not the row's"),
        ("unkept_reports", vitals.unkept_reports, "Stale reports, too many for the ledger"),
        ("lost", vitals.lost, "Attempts whose worker was lost"),
        ("timed_out", vitals.timed_out, "Attempts that had their time"),
        ("republished", vitals.republished, "Tasks that were in no stream, published again"),
    ):
        yield CounterMetricFamily(f"duly_{name}", text, value=value)


def _clock(context: Context) -> Iterator[Metric]:
    clock = context.clock
    # The one place where the wall clock is read: not to act on it, but to show how wrong it is.
    offset_s = clock.now_us() / 1e6 - time.time()
    for name, value, text in (
        ("clock_offset_seconds", offset_s, "PostgreSQL's clock minus this machine's"),
        ("clock_error_seconds", clock.offset_error_us / 1e6, "How far that may be off"),
    ):
        yield GaugeMetricFamily(f"duly_{name}", text, value=value)
