"""When a task comes again that a worker cannot run."""

from itertools import pairwise

import pytest

from duly.nodes.worker.giving_back import pause_s


@pytest.mark.parametrize(
    ("late_s", "shortest_s", "longest_s"),
    [
        (-3600, 5, 5),  # this machine's clock is behind
        (0, 5, 5),
        (49, 5, 5),
        (600, 40, 60),
        (3000, 200, 300),
        (86_400, 300, 300),
        (1e12, 300, 300),
    ],
)
def test_the_later_it_is_the_longer_is_the_pause(
    late_s: float, shortest_s: float, longest_s: float
) -> None:
    pauses = [pause_s(late_s) for _ in range(200)]
    assert shortest_s <= min(pauses) <= max(pauses) <= longest_s
    if shortest_s < longest_s:
        assert max(pauses) - min(pauses) > (longest_s - shortest_s) / 2


def test_in_a_day_it_comes_some_hundred_times_and_soon_at_first() -> None:
    late_s, times = 0.0, [0.0]
    while late_s < 86_400:
        late_s += pause_s(late_s)
        times.append(late_s)
    assert len([one for one in times if one <= 60]) > 10
    assert 300 < len(times) < 450  # of 17,280 at five seconds each
    assert all(b - a <= max(5, a / 10) for a, b in pairwise(times))
