"""Histograms against the values themselves."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.actors.meters.histogram import ERROR, Histogram, bounds, bucket_of

_values = st.one_of(st.integers(0, 100), st.integers(0, 10**7), st.integers(0, 10**13))
_parts = st.lists(st.lists(_values, max_size=60), min_size=1, max_size=6)


def exact(values: Sequence[int], share: float) -> int:
    """The nearest rank."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def test_buckets_follow_each_other_without_a_gap() -> None:
    for bucket in range(32 + 16 * 50):
        low, high = bounds(bucket)
        assert bounds(bucket + 1)[0] == high
        assert bucket_of(low) == bucket_of(high - 1) == bucket
        assert bucket < 32 or high - low <= low / 16


@given(_parts, st.sampled_from((0.0, 0.5, 0.9, 0.95, 0.99, 1.0)))
def test_percentiles_of_merged_histograms_are_within_the_stated_error(
    parts: list[list[int]], share: float
) -> None:
    merged = Histogram()
    for part in parts:
        one = Histogram()
        one.add(part)
        merged.merge(one)
    values = [value for part in parts for value in part]
    found = merged.quantile_us(share)
    assert merged.count == len(values)
    assert merged.sum_us == sum(values)
    if found is None:
        assert values == []
    else:
        true = exact(values, share)
        assert abs(found - true) <= true * ERROR


@given(_parts)
def test_merging_is_the_same_as_seeing_all(parts: list[list[int]]) -> None:
    merged, whole = Histogram(), Histogram()
    for part in parts:
        one = Histogram()
        one.add(part)
        merged.merge(one)
        whole.add(part)
    assert merged.buckets == whole.buckets


@given(_parts)
def test_what_was_merged_can_be_taken_away(parts: list[list[int]]) -> None:
    first, *others = parts
    kept, merged = Histogram(), Histogram()
    kept.add(first)
    merged.merge(kept)
    before = merged.copy()
    for part in others:
        one = Histogram()
        one.add(part)
        merged.merge(one)
        merged.take_away(one)
    assert dict(merged.buckets) == dict(before.buckets) == dict(kept.buckets)
    assert merged.sum_us == before.sum_us


@given(st.lists(_values, max_size=60))
def test_counts_below_powers_of_two_are_exact(values: list[int]) -> None:
    histogram = Histogram()
    histogram.add(values)
    limits = [1 << power for power in range(4, 40)]
    assert histogram.below(limits) == [sum(v < limit for v in values) for limit in limits]


def test_averages_of_percentiles_would_be_wrong() -> None:
    """A busy node and an idle one: the idle one's slow task must not count for half."""
    busy, idle = Histogram(), Histogram()
    busy.add([1_000] * 9_999)
    idle.add([9_000_000])
    busy.merge(idle)
    assert busy.quantile_us(0.99) == pytest.approx(1_000, rel=ERROR)


def test_what_lies_before_its_beginning_counts_as_nothing() -> None:
    histogram = Histogram()
    histogram.add([-5, 0])
    assert (histogram.buckets, histogram.sum_us) == ({0: 2}, 0)
