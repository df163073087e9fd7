"""The cluster's clock: samples, outliers, slewing, and that it never goes back."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duly.wheel.clock import STEP_US, Clock, ClusterClock, ManualClock, NotSyncedError

SERVER_US = 1_790_000_000_000_000
SECOND_US = 1_000_000


class Rig:
    """A clock under test, its monotonic source, and a server whose clock can be set."""

    def __init__(self) -> None:
        self.source = ManualClock(now_us=1_000 * SECOND_US, monotonic=1_000.0)
        self.server_offset_us = SERVER_US
        self.clock = ClusterClock(self.source.monotonic)

    def server_us(self) -> int:
        return self.source.now_us() + self.server_offset_us

    def error_us(self) -> int:
        """How far the clock shows more than the server's."""
        return self.clock.now_us() - self.server_us()

    def sample(self, there_s: float = 0.0005, back_s: float = 0.0005) -> None:
        """Ask the server; the two ways may take different times."""
        sent = self.source.monotonic()
        self.source.advance(there_s)
        server_us = self.server_us()
        self.source.advance(back_s)
        self.clock.observe(sent, self.source.monotonic(), server_us)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_it_says_so_before_the_first_sample(rig: Rig) -> None:
    assert not rig.clock.synced
    with pytest.raises(NotSyncedError, match="no sample from PostgreSQL"):
        rig.clock.now_us()
    for name in ("offset_us", "offset_error_us", "ahead_us"):
        with pytest.raises(NotSyncedError):
            getattr(rig.clock, name)
    assert rig.clock.monotonic() == 1_000.0
    rig.sample()
    assert rig.clock.synced


def test_it_follows_the_server_between_samples(rig: Rig) -> None:
    rig.sample()
    assert rig.error_us() == 0
    assert rig.clock.offset_us == SERVER_US
    assert rig.clock.offset_error_us == 500
    rig.source.advance(3_600)
    assert rig.error_us() == 0
    assert rig.clock.ahead_us == 0


def test_the_error_is_within_half_the_round_trip(rig: Rig) -> None:
    rig.sample(there_s=0.080, back_s=0.0)  # so the server's answer is newer than the middle
    assert rig.error_us() == 40_000
    assert rig.clock.offset_error_us == 40_000


def test_outliers_do_not_count_while_a_better_sample_is_kept(rig: Rig) -> None:
    rig.sample()
    for _ in range(7):
        rig.sample(there_s=2.0, back_s=0.1)
        rig.source.advance(1)
        assert rig.error_us() == 0
        assert rig.clock.offset_error_us == 500
    rig.sample(there_s=2.0, back_s=0.1)  # the good one is the ninth back now
    assert rig.clock.offset_error_us == 1_050_000


def test_the_shortest_round_trip_counts_and_of_equals_the_newest(rig: Rig) -> None:
    rig.sample(there_s=0.3, back_s=0.1)
    rig.sample(there_s=0.002, back_s=0.002)
    rig.sample(there_s=0.5, back_s=0.5)
    assert rig.clock.offset_us == SERVER_US
    rig.server_offset_us += 3_000
    rig.sample(there_s=0.002, back_s=0.002)
    assert rig.clock.offset_us == SERVER_US + 3_000


def test_a_small_correction_forward_is_slewed(rig: Rig) -> None:
    rig.sample(there_s=0.0, back_s=0.2)  # 100 ms behind
    assert rig.error_us() == -100_000
    rig.sample(there_s=0, back_s=0)
    assert rig.error_us() == -100_000
    rig.source.advance(0.5)
    assert rig.error_us() == -50_000
    rig.source.advance(0.5)
    assert rig.error_us() == 0
    rig.source.advance(100)
    assert rig.error_us() == 0


def test_a_small_correction_back_is_slewed(rig: Rig) -> None:
    rig.sample(there_s=0.2, back_s=0.0)  # 100 ms ahead
    rig.sample(there_s=0, back_s=0)
    assert rig.error_us() == rig.clock.ahead_us == 100_000
    rig.source.advance(0.5)
    assert rig.error_us() == rig.clock.ahead_us == 50_000
    rig.source.advance(0.5)
    assert rig.error_us() == rig.clock.ahead_us == 0


def test_slewing_does_not_depend_on_how_often_the_clock_is_read(rig: Rig) -> None:
    rig.sample(there_s=0.2, back_s=0.0)
    rig.sample(there_s=0, back_s=0)
    for _ in range(100_000):
        rig.source.advance(0.000005)
        rig.clock.now_us()
    assert rig.error_us() == 50_000


def test_a_step_forward_is_taken_at_once(rig: Rig) -> None:
    for _ in range(8):
        rig.sample()
    rig.server_offset_us += 3_600 * SECOND_US
    rig.sample(there_s=0.05, back_s=0.05)  # a longer round trip than the samples from before
    assert rig.error_us() == 0


def test_a_step_back_makes_it_stand_still_and_never_go_back(rig: Rig) -> None:
    rig.sample()
    before_us = rig.clock.now_us()
    rig.server_offset_us -= 10 * SECOND_US
    rig.sample()
    first_us = rig.clock.now_us()
    assert before_us <= first_us <= before_us + 1_000
    rig.source.advance(9)
    assert rig.clock.now_us() == first_us
    assert rig.clock.ahead_us == SECOND_US
    rig.source.advance(0.75)
    assert rig.clock.now_us() == first_us
    assert rig.clock.ahead_us == STEP_US
    rig.source.advance(1)
    assert rig.clock.ahead_us == STEP_US - 100_000
    rig.source.advance(1.5)
    assert rig.error_us() == 0


def test_a_step_below_the_limit_is_noticed_despite_older_and_faster_samples(rig: Rig) -> None:
    for _ in range(8):
        rig.sample(there_s=0.0001, back_s=0.0001)
    rig.server_offset_us += 100_000
    rig.sample(there_s=0.001, back_s=0.001)
    rig.source.advance(1)
    assert rig.error_us() == 0


def test_a_bad_sample_is_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="must not be before sent"):
        rig.clock.observe(2.0, 1.9, SERVER_US)
    assert not rig.clock.synced


def test_a_monotonic_source_that_goes_back_is_a_bug() -> None:
    times = iter([10.0, 9.0])
    clock = ClusterClock(lambda: next(times))
    clock.observe(9.9, 10.0, SERVER_US)
    with pytest.raises(AssertionError, match="went back"):
        clock.now_us()


delays_s = st.floats(0, 0.01) | st.floats(0, 3)
steps_us = (
    st.integers(-3_000, 3_000) | st.integers(-400_000, 400_000) | st.integers(-(10**10), 10**10)
)
events = st.one_of(
    st.tuples(st.just("wait"), st.floats(0, 0.01) | st.floats(0, 100), st.just(0.0)),
    st.tuples(st.just("sample"), delays_s, delays_s),
    st.tuples(st.just("step"), steps_us, st.just(0.0)),
)


@given(st.lists(events, max_size=40))
def test_it_never_goes_back_whatever_happens(happenings: list[tuple[str, float, float]]) -> None:
    rig = Rig()
    rig.sample()
    last_us = rig.clock.now_us()
    for event, first, second in happenings:
        if event == "wait":
            rig.source.advance(first)
        elif event == "sample":
            rig.sample(first, second)
        else:
            rig.server_offset_us += int(first)
        now_us = rig.clock.now_us()
        assert now_us >= last_us
        last_us = now_us
        assert rig.clock.ahead_us == max(0, now_us - rig.source.now_us() - rig.clock.offset_us)


@given(st.lists(st.tuples(delays_s, delays_s, st.floats(0, 10)), min_size=1, max_size=20))
def test_with_a_steady_server_the_estimate_is_within_its_error(
    samples: list[tuple[float, float, float]],
) -> None:
    rig = Rig()
    for there_s, back_s, wait_s in samples:
        rig.sample(there_s, back_s)
        assert abs(rig.clock.offset_us - SERVER_US) <= rig.clock.offset_error_us + 2
        rig.source.advance(wait_s)
    rig.source.advance(60)  # more than any correction takes
    assert abs(rig.error_us()) <= rig.clock.offset_error_us + 2


@given(st.integers(-200, 200), st.integers(1, 60))
def test_drift_between_the_clocks_is_followed(drift_ppm: int, every_s: int) -> None:
    """Each second of the server is some millionths longer or shorter than ours."""
    rig = Rig()
    for _ in range(100):
        rig.sample()
        rig.source.advance(every_s)
        rig.server_offset_us += drift_ppm * every_s
    assert abs(rig.error_us()) <= 10 * abs(drift_ppm) * every_s + 1_000


def test_manual_clock() -> None:
    clock: Clock = ManualClock(now_us=SERVER_US, monotonic=5.5)
    assert isinstance(clock, ManualClock)
    assert (clock.now_us(), clock.monotonic()) == (SERVER_US, 5.5)
    clock.advance(0.1)
    clock.advance(0.2)
    assert clock.now_us() == SERVER_US + 300_000
    assert clock.monotonic() == 5.8
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.1)


def test_a_cluster_clock_is_a_clock(rig: Rig) -> None:
    clock: Clock = rig.clock
    assert clock.monotonic() == rig.source.monotonic()
