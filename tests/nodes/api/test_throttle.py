"""Token buckets against a plain count of what flows in and out."""

from hypothesis import given
from hypothesis import strategies as st

from duly.nodes.api import throttle
from duly.nodes.api.throttle import Buckets


def test_a_full_bucket_gives_its_burst_then_its_rate() -> None:
    buckets = Buckets(rate=2.0, burst=3)
    for _ in range(3):
        assert buckets.wait_s("a", 100.0) == 0.0
        buckets.take("a", 100.0)
    assert buckets.wait_s("a", 100.0) == 0.5
    assert buckets.wait_s("a", 100.25) == 0.25
    assert buckets.wait_s("a", 100.5) == 0.0
    buckets.take("a", 100.5)
    assert buckets.wait_s("a", 100.5) == 0.5
    assert buckets.wait_s("b", 100.5) == 0.0  # every key has its own


def test_one_taken_from_an_empty_bucket_makes_the_wait_longer() -> None:
    buckets = Buckets(rate=1.0, burst=1)
    buckets.take("a", 0.0)
    buckets.take("a", 0.0)
    assert buckets.wait_s("a", 0.0) == 2.0


def test_full_buckets_are_forgotten_and_there_are_never_too_many() -> None:
    buckets = Buckets(rate=1.0, burst=1)
    buckets.take("a", 0.0)
    assert len(buckets) == 1
    assert buckets.wait_s("a", 1.0) == 0.0
    assert len(buckets) == 0
    for number in range(throttle.KEYS_MAX + 1):
        buckets.take(str(number), 2.0)
    assert len(buckets) == throttle.KEYS_MAX
    assert buckets.wait_s("0", 2.0) == 0.0
    assert buckets.wait_s("1", 2.0) == 1.0


@given(
    st.integers(1, 50),
    st.integers(1, 20),
    st.lists(st.integers(0, 3_000), min_size=1, max_size=60),
)
def test_it_gives_what_a_bucket_would(rate: int, burst: int, pauses_ms: list[int]) -> None:
    buckets, level, now_ms = Buckets(float(rate), burst), float(burst), 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        level = min(float(burst), level + rate * pause_ms / 1000)
        wait_s = buckets.wait_s("k", now_ms / 1000)
        assert abs(wait_s - max(0.0, (1 - level) / rate)) < 1e-6
        if wait_s == 0.0:
            buckets.take("k", now_ms / 1000)
            level -= 1
