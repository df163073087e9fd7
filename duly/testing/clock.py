"""A clock of the cluster that stands still until a test moves it."""

import time
from datetime import datetime

from duly.wheel.clock import ClusterClock
from duly.wheel.durations import from_us, to_us


class SetClock(ClusterClock):
    """Shows the time that was set last. Monotonic time, by which leases and timeouts go, runs on."""

    def __init__(self, now: datetime) -> None:
        super().__init__(time.monotonic)
        self._set_us = to_us(now)

    @property
    def now(self) -> datetime:
        """The time that was set last."""
        return from_us(self._set_us)

    @property
    def error_us(self) -> int:
        """Never ahead of PostgreSQL's clock, nor behind: that one does not count here."""
        return 0

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return self._set_us

    def now_ms(self) -> float:
        """The same in milliseconds, as workers report it."""
        return self._set_us / 1000

    def set(self, now: datetime) -> None:
        """Raises ValueError if that would go back."""
        if to_us(now) < self._set_us:
            raise ValueError(f"time does not go back, from {self.now} to {now}")
        self._set_us = to_us(now)
