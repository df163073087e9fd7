"""The cluster's clock: PostgreSQL's time, kept by this process's monotonic clock in between.

Each answer of PostgreSQL to "what time is it" is a sample: the server read its clock somewhere
between sending and receiving, so taking the middle is wrong by at most half the round trip. Of
the last eight samples the one with the shortest round trip counts, of equals the newest. How
often to measure is the caller's choice: two clocks drift apart by some 50 us a second, so every
few seconds will do.

A sample that cannot be true together with the one in use (each with its error, and 10 ms for
drift) shows that one of the two clocks was moved: the samples from before no longer count.

`now_us` follows a new estimate without ever going back:

    behind by more than 250 ms    it steps forward at once
    behind by up to 250 ms        it runs 10 % fast until it agrees
    ahead by up to 250 ms         it runs 10 % slow until it agrees
    ahead by more than 250 ms     it stands still until 250 ms remain, then runs 10 % slow

While it is ahead (`ahead_us`), something may look due that is not due yet for PostgreSQL.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

SAMPLES_MAX = 8
"""Samples kept."""

STEP_US = 250_000
"""Corrections up to this are slewed."""

_SLEW_DIVISOR = 10  # 10 % fast or slow
_DRIFT_US = 10_000


class NotSyncedError(RuntimeError):
    """The offset to PostgreSQL has not been measured yet."""

    def __init__(self) -> None:
        super().__init__("the cluster's clock is not known yet: no sample from PostgreSQL")


class Clock(Protocol):
    """What an actor needs to know about time."""

    def monotonic(self) -> float:
        """Seconds on a clock that nobody sets; only differences mean something."""

    def now_us(self) -> int:
        """Microseconds since the epoch on the cluster's clock; never goes back."""


class _Sample(NamedTuple):
    round_trip_us: int
    offset_us: int  # cluster time minus monotonic time

    @property
    def error_us(self) -> int:
        return (self.round_trip_us + 1) // 2


class _Course(NamedTuple):
    """How `now_us` runs since the last sample: a function of time alone, however often asked."""

    from_us: int  # monotonic
    shown_us: int  # cluster time shown at that moment
    behind_us: int  # estimate minus shown at that moment; negative if ahead

    def at(self, monotonic_us: int) -> int:
        elapsed_us = monotonic_us - self.from_us
        assert elapsed_us >= 0, "the monotonic source went back"
        if self.behind_us >= 0:
            faster_us = min(self.behind_us, elapsed_us // _SLEW_DIVISOR)
            return self.shown_us + elapsed_us + faster_us
        standstill_us = max(0, -self.behind_us - STEP_US)
        running_us = max(0, elapsed_us - standstill_us)
        slower_us = min(-self.behind_us - standstill_us, running_us // _SLEW_DIVISOR)
        return self.shown_us + running_us - slower_us


class ClusterClock:
    """A `Clock` from a monotonic source (seconds, such as `time.monotonic`) and samples."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._course: _Course | None = None

    @property
    def synced(self) -> bool:
        """Whether there is a sample, without which the other answers raise NotSyncedError."""
        return self._course is not None

    @property
    def offset_us(self) -> int:
        """The estimate: cluster time minus monotonic time."""
        return self._best().offset_us

    @property
    def offset_error_us(self) -> int:
        """How far the estimate may be off: half the round trip of the sample in use."""
        return self._best().error_us

    @property
    def ahead_us(self) -> int:
        """How far `now_us` is ahead of the estimate, which it lets catch up; 0 if it is not."""
        return max(0, self.error_us)

    @property
    def error_us(self) -> int:
        """How far `now_us` is ahead of the estimate; less than 0 if it is behind."""
        monotonic_us = _to_us(self._monotonic())
        return self._shown_us(monotonic_us) - (monotonic_us + self.offset_us)

    def observe(self, sent: float, received: float, server_us: int) -> None:
        """Take a sample: the server's clock said `server_us` between `sent` and `received`.

        Both are seconds of the monotonic source. Raises ValueError if received < sent.
        """
        if received < sent:
            raise ValueError(f"received ({received}) must not be before sent ({sent})")
        sent_us, received_us = _to_us(sent), _to_us(received)
        sample = _Sample(received_us - sent_us, server_us - (sent_us + received_us) // 2)
        if self._samples:
            best = self._best()
            apart_us = abs(sample.offset_us - best.offset_us)
            if apart_us > sample.error_us + best.error_us + _DRIFT_US:
                self._samples.clear()
        self._samples.append(sample)
        monotonic_us = _to_us(self._monotonic())
        estimate_us = monotonic_us + self.offset_us
        shown_us = estimate_us if self._course is None else self._course.at(monotonic_us)
        if estimate_us - shown_us > STEP_US:
            shown_us = estimate_us
        self._course = _Course(monotonic_us, shown_us, estimate_us - shown_us)

    def monotonic(self) -> float:
        """Seconds of the monotonic source."""
        return self._monotonic()

    def now_us(self) -> int:
        """Cluster time. Raises NotSyncedError before the first sample."""
        return self._shown_us(_to_us(self._monotonic()))

    def _shown_us(self, monotonic_us: int) -> int:
        if self._course is None:
            raise NotSyncedError
        return self._course.at(monotonic_us)

    def _best(self) -> _Sample:
        if not self._samples:
            raise NotSyncedError
        return min(reversed(self._samples), key=lambda sample: sample.round_trip_us)


class ManualClock:
    """A `Clock` that moves only when told, for tests."""

    def __init__(self, now_us: int = 0, monotonic: float = 0.0) -> None:
        self._monotonic_us = _to_us(monotonic)
        self._offset_us = now_us - self._monotonic_us

    def monotonic(self) -> float:
        """Seconds, as far as `advance` has moved it."""
        return self._monotonic_us / 1_000_000

    def now_us(self) -> int:
        """Microseconds since the epoch, as far as `advance` has moved it."""
        return self._monotonic_us + self._offset_us

    def advance(self, seconds: float) -> None:
        """Move both clocks, by whole microseconds. Raises ValueError if `seconds` < 0."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} s")
        self._monotonic_us += _to_us(seconds)


def _to_us(seconds: float) -> int:
    return round(seconds * 1_000_000)
