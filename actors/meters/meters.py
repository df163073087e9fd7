"""What the actors of a node note of their work, a batch at a time; read by /metrics and /v1/stats."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final, NamedTuple

from duly.actors.meters.histogram import Histogram
from duly.actors.meters.minutes import KEPT, MINUTE_US, Figures
from duly.actors.meters.names import Names
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us

TYPES_MAX = 50
"""Types that have figures of their own; all further ones share those of `_other`."""

QUEUES_MAX = 50
"""Queues that have figures of their own, likewise."""

OUTCOMES: Final = ("completed", "failed", "lost", "timed_out", "snoozed")
READERS: Final = ("pass", "sweep", "refill")
LEASE_CHANGES: Final = ("taken", "given_up", "lost")


class Measured(NamedTuple):
    """An attempt whose end was recorded. Times in microseconds, None if not known."""

    type: str
    outcome: str
    duration_us: int | None
    start_lag_us: int | None
    """From its due time to its start, by the worker's clock."""
    retried: bool = False
    exhausted: bool = False
    """It failed, and is not tried again."""
    skipped: int = 0
    """Occurrences that came due while it ran."""


class Meters:
    """In memory only. It outlives the actors that write to it, one each to its own figures."""

    def __init__(self) -> None:
        self.types = Names(TYPES_MAX)
        self.queues = Names(QUEUES_MAX)
        self.attempts: Counter[tuple[str, str]] = Counter()
        """By type and outcome."""
        self.retried: Counter[str] = Counter()
        self.exhausted: Counter[str] = Counter()
        self.readings = {reader: Histogram() for reader in READERS}
        """How long the prefetcher's readings took."""
        self.statements: dict[str, Histogram] = {}
        self.statement_failures: Counter[str] = Counter()
        self.loop_delay = Histogram()
        self.lease_changes: Counter[str] = Counter(dict.fromkeys(LEASE_CHANGES, 0))
        self.epoch = 0
        """The highest epoch of a slot that this node has taken."""
        self.minutes: dict[int, Figures] = {}
        """By minute since the epoch on the cluster's clock, the last `KEPT`."""
        self.unsaved: set[int] = set()
        """Minutes with figures that are not in Redis yet."""
        self._fresh = Figures()
        self._total = Figures()
        self._due = 0

    def published(self, rows: Sequence[DueRow], claimed_us: int, published_us: int) -> None:
        """These were claimed and published at these instants of the cluster's clock."""
        due = [to_us(row.next_run_at) for row in rows]
        fresh = self._fresh
        fresh.counts["started"] += len(rows)
        fresh.lag("ticked").add(
            [row.ticked_us - at for row, at in zip(rows, due, strict=True) if row.ticked_us]
        )
        fresh.lag("claimed").add([claimed_us - at for at in due])
        fresh.lag("published").add([published_us - at for at in due])

    def ended(self, attempts: Iterable[Measured]) -> None:
        """The ends of these attempts were recorded."""
        fresh, lags = self._fresh, []
        durations: dict[str, list[int]] = {}
        for one in attempts:
            label = self.types.label(one.type)
            self.attempts[label, one.outcome] += 1
            fresh.counts[one.outcome] += 1
            if one.retried:
                self.retried[label] += 1
                fresh.counts["retried"] += 1
            if one.exhausted:
                self.exhausted[label] += 1
                fresh.counts["exhausted"] += 1
            if one.skipped:
                fresh.counts["skipped"] += one.skipped
            if one.start_lag_us is not None:
                lags.append(one.start_lag_us)
            if one.duration_us is not None:
                durations.setdefault(label, []).append(one.duration_us)
        fresh.lag("started").add(lags)
        for label, values in durations.items():
            fresh.duration(label).add(values)

    def skipped(self, count: int) -> None:
        """So many occurrences were recorded as skipped."""
        self._fresh.counts["skipped"] += count

    def statement(self, name: str, took_s: float, failed: bool) -> None:
        """A statement was answered, or failed, after so long."""
        known = self.statements.get(name)
        if known is None:
            known = self.statements[name] = Histogram()
        known.add((round(took_s * 1e6),))
        self.statement_failures[name] += failed

    @contextmanager
    def reading(self, reader: str) -> Iterator[None]:
        """Around one reading of the prefetcher."""
        began = perf_counter()
        yield
        self.readings[reader].add((round((perf_counter() - began) * 1e6),))

    def due(self, count: int, now_us: int) -> None:
        """So many tasks of this node's slots are due and not claimed."""
        minute = self._minute(now_us)
        if self._due != count:
            self._due = self.minutes[minute].due = count
            self.unsaved.add(minute)

    def fold(self, now_us: int) -> None:
        """Count what was noted since the last call to the minute that runs, and to the totals."""
        minute, fresh = self._minute(now_us), self._fresh
        if not fresh.counts:
            return
        self._fresh = Figures()
        self.minutes[minute].merge(fresh)
        self.unsaved.add(minute)
        self._total.merge(fresh)

    def total(self, now_us: int) -> Figures:
        """Everything since the process began."""
        self.fold(now_us)
        return self._total

    def lag_p99_s(self, now_us: int) -> float | None:
        """Of the last five minutes: from the due time to the publication; None without any."""
        self.fold(now_us)
        lag = Histogram()
        for minute in range(now_us // MINUTE_US - 4, now_us // MINUTE_US + 1):
            if minute in self.minutes:
                lag.merge(self.minutes[minute].lag("published"))
        found = lag.quantile_us(0.99)
        return None if found is None else found / 1e6

    def _minute(self, now_us: int) -> int:
        """The minute that runs; makes room for it."""
        minute = now_us // MINUTE_US
        if minute not in self.minutes:
            self.minutes[minute] = Figures()
            self.minutes[minute].due = self._due  # until it is counted again
            self.unsaved.add(minute)
            self.minutes = {m: one for m, one in self.minutes.items() if m > minute - KEPT}
            self.unsaved &= self.minutes.keys()
        return minute
