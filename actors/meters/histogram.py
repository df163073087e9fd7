"""Log-linear histograms: each doubling of the value is cut into 16 buckets of equal width.

Whole microseconds below 32 have a bucket each. Above, a bucket is at most 1/16 of its lower bound
wide, and stands for its middle: so a percentile is off by at most `ERROR` of the true value. Two
histograms merge by adding up their buckets, which loses nothing: the percentiles of the sum are as
good as those of one histogram that had seen every value.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

ERROR = 1 / 32
"""A percentile is off by at most this share of the true one."""

_EXACT = 32  # below, each value has its own bucket
_BITS = 5  # of a value that count; the first of them is always 1
_HALF_BITS = _BITS - 1


def bucket_of(value_us: int) -> int:
    """The number of the bucket that holds a value of 0 or more; it grows with the value."""
    if value_us < _EXACT:
        return value_us
    shift = value_us.bit_length() - _BITS
    return (shift << _HALF_BITS) + (value_us >> shift)


def bounds(bucket: int) -> tuple[int, int]:
    """The least value in a bucket, and the least above it."""
    if bucket < _EXACT:
        return bucket, bucket + 1
    shift = (bucket >> _HALF_BITS) - 1
    low = (bucket - (shift << _HALF_BITS)) << shift
    return low, low + (1 << shift)


class Histogram:
    """Counts of durations in microseconds."""

    __slots__ = ("buckets", "sum_us")

    def __init__(self, buckets: Counter[int] | None = None, sum_us: int = 0) -> None:
        self.buckets: Counter[int] = Counter() if buckets is None else buckets
        self.sum_us = sum_us

    @property
    def count(self) -> int:
        """How many values it has seen."""
        return self.buckets.total()

    def add(self, values_us: Iterable[int]) -> None:
        """Count values; a negative one as 0."""
        values = [max(0, value) for value in values_us]
        self.sum_us += sum(values)
        # The text of `bucket_of`, without a call for each value; Counter counts in C.
        self.buckets.update([
            value if value < _EXACT
            else ((shift := value.bit_length() - _BITS) << _HALF_BITS) + (value >> shift)
            for value in values
        ])  # fmt: skip

    def merge(self, other: "Histogram") -> None:
        """Add all that another one has seen."""
        self.buckets.update(other.buckets)
        self.sum_us += other.sum_us

    def take_away(self, other: "Histogram") -> None:
        """Undo a `merge`."""
        self.buckets.subtract(other.buckets)
        for bucket in other.buckets:
            if not self.buckets[bucket]:
                del self.buckets[bucket]
        self.sum_us -= other.sum_us

    def copy(self) -> "Histogram":
        """Another one with the same counts."""
        return Histogram(self.buckets.copy(), self.sum_us)

    def quantile_us(self, share: float) -> float | None:
        """The value that `share` (0 to 1) of all values do not exceed; None if there are none."""
        return self.quantiles_us([share])[0]

    def quantiles_us(self, shares: Sequence[float]) -> list[float | None]:
        """The same for several shares, ascending.

        The nearest rank: with n values the one at place ceil(share * n), at least the first.
        """
        places = [max(1, math.ceil(share * self.count)) for share in shares]
        found: list[float | None] = []
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            while len(found) < len(places) and seen >= places[len(found)]:
                low, high = bounds(bucket)
                found.append((low + high - 1) / 2)
        return found + [None] * (len(places) - len(found))

    def below(self, limits_us: Sequence[int]) -> list[int]:
        """For each limit, ascending and each a bound of buckets: how many values are below it."""
        counts = [0] * (len(limits_us) + 1)
        for bucket, count in self.buckets.items():
            counts[bisect_right(limits_us, bounds(bucket)[0])] += count
        total, found = 0, []
        for count in counts[:-1]:
            total += count
            found.append(total)
        return found
