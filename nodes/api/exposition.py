"""The node's meters as Prometheus reads them. Buckets end at powers of two, where ours end too."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from duly.actors.meters.histogram import Histogram
from duly.actors.meters.meters import OUTCOMES, QUEUES_MAX, Meters
from duly.actors.meters.minutes import STAGES, Figures
from duly.nodes.api.task_counts import Counted, largest

_FINE_US = tuple(1 << power for power in range(10, 31))
"""From 1 ms to 18 minutes, doubling."""
_COARSE_US = tuple(1 << power for power in range(8, 36, 2))
"""From 0.3 ms to 4.8 hours, by four."""


def meters(measured: Meters, now_us: int) -> Iterator[Metric]:
    """All that the actors have noted since the process began."""
    total = measured.total(now_us)
    yield _firing_lag(total)
    yield from _attempts(measured, total)
    yield _histograms(
        "prefetch_seconds", "How long readings of due tasks took", "reader", measured.readings
    )
    yield _histograms(
        "statement_seconds", "Time from asking PostgreSQL to its answer", "statement",
        measured.statements,
    )  # fmt: skip
    failures = CounterMetricFamily(
        "duly_statement_failures", "Statements that PostgreSQL did not answer", labels=["statement"]
    )
    for name, count in sorted(measured.statement_failures.items()):
        failures.add_metric([name], count)
    yield failures
    delay = HistogramMetricFamily(
        "duly_event_loop_delay_seconds", "How late the event loop woke a timer"
    )
    _add(delay, [], measured.loop_delay, _FINE_US)
    yield delay
    changes = CounterMetricFamily(
        "duly_lease_changes", "Slots that this node took, gave up or lost", labels=["change"]
    )
    for change, count in measured.lease_changes.items():
        changes.add_metric([change], count)
    yield changes
    yield GaugeMetricFamily(
        "duly_slot_epoch", "The highest epoch of a slot this node has taken", value=measured.epoch
    )


def depths(counted: Counted | None) -> Iterator[Metric]:
    """Tasks in the store, whichever node counts them."""
    if counted is None:
        return
    tasks = GaugeMetricFamily(
        "duly_tasks", "Tasks in the store; the same on every node", labels=["queue", "status"]
    )
    for queue, depth in largest(counted.counts.queues, QUEUES_MAX).items():
        for status, count in depth._asdict().items():
            tasks.add_metric([queue, status], count)
    yield tasks
    yield GaugeMetricFamily(
        "duly_tasks_exact", "1 if duly_tasks is counted, 0 if it is estimated",
        value=float(counted.counts.exact),
    )  # fmt: skip


def _firing_lag(total: Figures) -> Metric:
    lags = {stage: total.lag(stage) for stage in STAGES}
    return _histograms(
        "firing_lag_seconds", "From the due time of a task to this stage", "stage", lags, _FINE_US
    )


def _attempts(measured: Meters, total: Figures) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "duly_attempts", "Attempts whose end was recorded", labels=["type", "outcome"]
    )
    retried = CounterMetricFamily("duly_retries", "Attempts that are tried again", labels=["type"])
    exhausted = CounterMetricFamily(
        "duly_retries_exhausted", "Attempts that failed and are not tried again", labels=["type"]
    )
    for name in sorted({name for name, _ in measured.attempts}):
        for outcome in OUTCOMES:
            attempts.add_metric([name, outcome], measured.attempts[name, outcome])
        retried.add_metric([name], measured.retried[name])
        exhausted.add_metric([name], measured.exhausted[name])
    yield attempts
    yield retried
    yield exhausted
    yield CounterMetricFamily(
        "duly_skipped", "Occurrences recorded as skipped", value=total.counts["skipped"]
    )
    yield _histograms(
        "attempt_duration_seconds", "From start to end, as workers reported them", "type",
        total.durations,
    )  # fmt: skip


def _histograms(
    name: str,
    text: str,
    label: str,
    histograms: Mapping[str, Histogram],
    limits_us: tuple[int, ...] = _COARSE_US,
) -> Metric:
    family = HistogramMetricFamily(f"duly_{name}", text, labels=[label])
    for value, histogram in sorted(histograms.items()):
        _add(family, [value], histogram, limits_us)
    return family


def _add(
    family: HistogramMetricFamily,
    labels: list[str],
    histogram: Histogram,
    limits_us: tuple[int, ...],
) -> None:
    counts = zip(limits_us, histogram.below(limits_us), strict=True)
    buckets = [(str(limit / 1e6), float(count)) for limit, count in counts]
    family.add_metric(labels, [*buckets, ("+Inf", histogram.count)], histogram.sum_us / 1e6)
