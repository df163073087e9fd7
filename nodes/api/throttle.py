"""Token buckets by key: how often somebody may do something, without a timer and in bounded memory.

A bucket is one number, the time at which it will be full again (the generic cell rate algorithm).
Buckets are of this process alone: what several nodes allow adds up.
"""

from collections import OrderedDict
from typing import Final

KEYS_MAX: Final = 10_000
"""Buckets kept; beyond it the one that was used longest ago is forgotten, and so is full again."""


class Buckets:
    """A bucket for each key, full at first. Times are seconds of one monotonic clock."""

    def __init__(self, rate: float, burst: int) -> None:
        """`rate`: how many come back a second, more than 0. `burst`: how many a full one holds."""
        assert rate > 0
        assert burst >= 1
        self._interval_s = 1 / rate
        self._tolerance_s = (burst - 1) * self._interval_s
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, key: str, now_s: float) -> float:
        """Seconds until one can be taken; 0 if it can be now."""
        full_at = self._full_at.get(key)
        if full_at is None:
            return 0.0
        if full_at <= now_s:
            del self._full_at[key]
            return 0.0
        return max(0.0, full_at - now_s - self._tolerance_s)

    def take(self, key: str, now_s: float) -> None:
        """Take one, also if there is none: then the wait grows."""
        full_at = max(self._full_at.pop(key, now_s), now_s)
        self._full_at[key] = full_at + self._interval_s
        if len(self._full_at) > KEYS_MAX:
            self._full_at.popitem(last=False)
