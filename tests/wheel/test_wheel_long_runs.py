"""Long seeded runs of the wheel against a sorted list: thousands of entries, crowded slots.

The state machine in `test_wheel_model.py` finds corner cases with few entries; this one reaches
the paths that need many: slots too large to sort, bites out of herds, far entries coming down.
"""

from bisect import bisect_right, insort
from random import Random

import pytest

from duly.wheel.wheel import Wheel

SECOND_US = 1_000_000
SPANS_US = (2_000, 50_000, SECOND_US, 100 * SECOND_US, 3_600 * SECOND_US, 90_000_000 * SECOND_US)


class Run:
    """One run: the wheel, and the expected entries as a sorted list of (due, arrival, key)."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_us = self.random.randrange(1_000_000 * SECOND_US, 1_790_000_000 * SECOND_US)
        self.wheel = Wheel[int, int](self.now_us)
        self.expected: list[tuple[int, int, int]] = []
        self.places: dict[int, tuple[int, int, int]] = {}
        self.arrivals = 0

    def insert(self, key: int, due_us: int) -> None:
        if key in self.places:
            self.forget(key)
        self.arrivals += 1
        self.places[key] = (due_us, self.arrivals, key)
        insort(self.expected, self.places[key])
        self.wheel.insert(key, due_us, self.arrivals)

    def forget(self, key: int) -> None:
        place = self.places.pop(key)
        at = bisect_right(self.expected, place) - 1
        assert self.expected.pop(at) == place

    def insert_crowd(self) -> None:
        span_us = self.random.choice(SPANS_US)
        base_us = self.now_us + self.random.choice((0, 0, self.random.choice(SPANS_US)))
        for _ in range(self.random.choice((1, 20, 300, 6_000))):
            self.insert(self.random.randrange(20_000), base_us + self.random.randrange(span_us))

    def cancel_some(self) -> None:
        for _ in range(self.random.choice((1, 100, 3_000))):
            key = self.random.randrange(20_000)
            known = key in self.places
            assert self.wheel.cancel(key) == known
            if known:
                self.forget(key)

    def advance(self) -> None:
        self.now_us += self.random.randrange(self.random.choice(SPANS_US[:5]))
        limit = self.random.choice((None, 7, 500))
        for _ in range(3):
            fired = self.wheel.advance(self.now_us, limit)
            ripe = bisect_right(self.expected, self.now_us, key=lambda place: place[0])
            due = self.expected[:ripe][:limit]
            assert fired == [(due_us, key, arrival) for due_us, arrival, key in due]
            del self.expected[: len(due)]
            for _, _, key in due:
                del self.places[key]

    def check(self) -> None:
        assert len(self.wheel) == len(self.expected)
        next_us = self.wheel.next_due_us()
        assert (next_us is None) == (not self.expected)
        assert next_us is None or next_us <= self.expected[0][0]


@pytest.mark.parametrize("seed", range(8))
def test_long_run(seed: int) -> None:
    run = Run(seed)
    steps = (run.insert_crowd, run.insert_crowd, run.cancel_some, run.advance, run.advance)
    for _ in range(150):
        run.random.choice(steps)()
        run.check()
    run.now_us += 2 * SPANS_US[-1]
    while run.expected:
        run.advance()
