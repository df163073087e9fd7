"""What the whole cluster has done of late, from the histograms of all nodes."""

from datetime import datetime
from typing import Literal

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.actors.meters.cluster import ClusterMeters
from duly.actors.meters.histogram import Histogram
from duly.actors.meters.meters import TYPES_MAX
from duly.actors.meters.minutes import KEPT, MINUTE_US, STAGES, Figures
from duly.actors.meters.names import OTHER
from duly.nodes.api import answers, queries, views
from duly.nodes.api.task_counts import Counted, TaskCounts, largest
from duly.wheel.durations import from_us

Scope = Literal["cluster", "node"]

_QUEUES_MAX = 200
_STEP_S = 60


class Percentiles(msgspec.Struct):
    """Seconds; null if there is nothing to tell of."""

    p50: float | None
    p95: float | None
    p99: float | None


class DurationView(Percentiles):
    """Of the attempts of one type."""

    count: int


class WindowView(msgspec.Struct):
    """What happened in some time."""

    started: int
    completed: int
    failed: int
    retried: int
    exhausted: int
    lost: int
    timed_out: int
    skipped: int
    failure_rate: float | None
    lag: Percentiles
    stages: dict[str, Percentiles]
    durations: dict[str, DurationView]


class QueueDepth(msgspec.Struct):
    """Tasks of one queue; `due`: those of `pending` that are due and not paused."""

    pending: int
    due: int
    paused: int
    running: int


class CountsView(msgspec.Struct):
    """Tasks in the store; an estimate unless `exact`."""

    by_status: dict[str, int]
    by_queue: dict[str, QueueDepth]
    counted_at: datetime
    exact: bool


class Stats(msgspec.Struct):
    """`scope` node: Redis does not answer, so the windows are of this node alone."""

    at: datetime
    scope: Scope
    counts: CountsView | None
    windows: dict[str, WindowView]


class Point(msgspec.Struct):
    """One minute, from `at` on."""

    at: datetime
    started: int
    completed: int
    failed: int
    lag_p50: float | None
    lag_p95: float | None
    lag_p99: float | None
    queue_depth: int


class Series(msgspec.Struct):
    """Oldest first; the last minute still runs."""

    step_s: int
    scope: Scope
    points: list[Point]


class StatsHandlers:
    """GET /v1/stats and /v1/stats/series."""

    def __init__(self, context: Context, counts: TaskCounts) -> None:
        self._context = context
        self._counts = counts
        self._cluster = ClusterMeters(context)

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/v1/stats", self.stats, allow_head=False),
            web.get("/v1/stats/series", self.series, allow_head=False),
        ]

    async def stats(self, request: web.Request) -> web.Response:
        """Counts, and what happened in the last five minutes and the last hour."""
        queries.known_only(request, ())
        counted = await self._counts.get()
        hour = await self._cluster.hour()
        return answers.body(
            Stats(
                at=from_us(self._context.clock.now_us()),
                scope="cluster" if hour.whole else "node",
                counts=None if counted is None else _counts(counted),
                windows={"5m": window(hour.recent), "1h": window(hour.sum)},
            )
        )

    async def series(self, request: web.Request) -> web.Response:
        """Minute by minute."""
        queries.known_only(request, ("minutes",))
        return answers.body(
            await self.points(queries.whole(request, "minutes", KEPT - 1, KEPT - 1))
        )

    async def newest(self) -> list[bytes]:
        """The points of the minute before and of the one that runs, each as JSON, as in `series`.

        Nodes tell of the last seconds of a minute when it is over.
        """
        return [views.encoder.encode(point) for point in (await self.points(2)).points]

    async def points(self, minutes: int) -> Series:
        """The last `minutes` minutes."""
        hour = await self._cluster.hour()
        points = [_point(number, one) for number, one in hour.minutes.items()]
        return Series(_STEP_S, "cluster" if hour.whole else "node", points[-minutes:])


def window(sums: Figures) -> WindowView:
    """What happened in some minutes."""
    counts = sums.counts
    bad = counts["failed"] + counts["lost"] + counts["timed_out"]
    ended = counts["completed"] + bad
    stages = {stage: _percentiles(sums.lag(stage)) for stage in STAGES}
    return WindowView(
        started=counts["started"], completed=counts["completed"], failed=counts["failed"],
        retried=counts["retried"], exhausted=counts["exhausted"], lost=counts["lost"],
        timed_out=counts["timed_out"], skipped=counts["skipped"],
        failure_rate=bad / ended if ended else None,
        lag=stages["published"],
        stages=stages,
        durations=_durations(sums.durations),
    )  # fmt: skip


def _durations(by_type: dict[str, Histogram]) -> dict[str, DurationView]:
    """Of the types with the most attempts; each node has its own first so many."""
    ranked = sorted(by_type, key=lambda name: (name == OTHER, -by_type[name].count, name))
    shown = {name: by_type[name] for name in ranked[:TYPES_MAX]}
    for name in ranked[TYPES_MAX:]:
        shown.setdefault(OTHER, Histogram()).merge(by_type[name])
    return {name: DurationView(*_quantiles(one), count=one.count) for name, one in shown.items()}


def _point(minute: int, figures: Figures) -> Point:
    counts = figures.counts
    return Point(
        from_us(minute * MINUTE_US),
        counts["started"],
        counts["completed"],
        counts["failed"] + counts["lost"] + counts["timed_out"],
        *_quantiles(figures.lag("published")),
        figures.due,
    )


def _percentiles(histogram: Histogram) -> Percentiles:
    return Percentiles(*_quantiles(histogram))


def _quantiles(histogram: Histogram) -> tuple[float | None, float | None, float | None]:
    found = histogram.quantiles_us((0.5, 0.95, 0.99))
    p50, p95, p99 = (None if one is None else one / 1e6 for one in found)
    return p50, p95, p99


def _counts(counted: Counted) -> CountsView:
    queues = counted.counts.queues.values()
    by_status = {"pending": 0, "running": 0, "completed": 0, "failed": 0, "cancelled": 0}
    by_status |= counted.counts.finished
    by_status["pending"] = sum(depth.pending for depth in queues)
    by_status["running"] = sum(depth.running for depth in queues)
    return CountsView(
        by_status,
        {
            name: QueueDepth(*depth)
            for name, depth in largest(counted.counts.queues, _QUEUES_MAX).items()
        },
        counted.at,
        counted.counts.exact,
    )
