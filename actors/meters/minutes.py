"""A node's figures of some time: counts and histograms, which merge without loss."""

from collections import Counter
from typing import Final

import msgspec

from duly.actors.meters.histogram import Histogram

STAGES: Final = ("ticked", "claimed", "published", "started")
"""What a task passes after it came due; each is measured from the due time."""

KEPT = 61
"""Minutes that are kept: the one that runs, and the hour before it."""

MINUTE_US = 60_000_000

_Buckets = dict[int, int]


class _Kept(msgspec.Struct, array_like=True):
    """As it stands in Redis, in MessagePack. A later version may say more."""

    counts: dict[str, int]
    lags: dict[str, _Buckets]
    durations: dict[str, _Buckets]
    due: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Kept)


class Figures:
    """What happened in some time, at one node or at many."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """started, retried, exhausted, skipped, and the attempts that ended by their outcomes."""
        self.lags: dict[str, Histogram] = {}
        """By stage."""
        self.durations: dict[str, Histogram] = {}
        """Of attempts that a worker ended, by type."""
        self.due = 0
        """How many tasks were due and not claimed, when last looked."""

    def lag(self, stage: str) -> Histogram:
        """The histogram of a stage."""
        return _of(self.lags, stage)

    def duration(self, task_type: str) -> Histogram:
        """The histogram of a type."""
        return _of(self.durations, task_type)

    def merge(self, other: "Figures") -> None:
        """Add what happened elsewhere, or at another time."""
        self.counts.update(other.counts)
        for stage, lag in other.lags.items():
            self.lag(stage).merge(lag)
        for task_type, duration in other.durations.items():
            self.duration(task_type).merge(duration)
        self.due += other.due

    def take_away(self, other: "Figures") -> None:
        """Undo a `merge`."""
        self.counts.subtract(other.counts)
        for stage, lag in other.lags.items():
            self.lag(stage).take_away(lag)
        for task_type, duration in other.durations.items():
            known = self.duration(task_type)
            known.take_away(duration)
            if not known.buckets:
                del self.durations[task_type]
        self.due -= other.due

    def copy(self) -> "Figures":
        """Others that are the same."""
        found = Figures()
        found.counts = self.counts.copy()
        found.lags = {stage: one.copy() for stage, one in self.lags.items()}
        found.durations = {task_type: one.copy() for task_type, one in self.durations.items()}
        found.due = self.due
        return found

    def encode(self) -> bytes:
        """For Redis. Sums of durations stay behind: percentiles do not need them."""
        return _encoder.encode(
            _Kept(
                self.counts,
                {stage: one.buckets for stage, one in self.lags.items()},
                {task_type: one.buckets for task_type, one in self.durations.items()},
                self.due,
            )
        )


def decode(words: bytes) -> Figures:
    """Read what `encode` wrote. Raises msgspec.DecodeError."""
    kept = _decoder.decode(words)
    found = Figures()
    found.counts = Counter(kept.counts)
    found.lags = {stage: Histogram(Counter(one)) for stage, one in kept.lags.items()}
    found.durations = {name: Histogram(Counter(one)) for name, one in kept.durations.items()}
    found.due = kept.due
    return found


def _of(histograms: dict[str, Histogram], name: str) -> Histogram:
    found = histograms.get(name)
    if found is None:
        found = histograms[name] = Histogram()
    return found
