"""The wheel against a sorted list: random operations, every answer compared."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly.wheel.wheel import Wheel

START_US = 1_790_000_000_000_000
LAST_US = 253_402_300_799_999_999  # the end of the year 9999

keys = st.integers(0, 40)
values = st.integers(0, 3)

# Every scale that the levels have, with both sides of the roll-over of each digit.
offsets_us = st.one_of(
    st.integers(-3_000, 3_000),
    st.builds(
        lambda power, factor, around: (factor << power) + around,
        st.integers(0, 44),
        st.integers(1, 3),
        st.integers(-2, 2),
    ),
    st.integers(0, 200_000_000),
)


@dataclass
class SortedList:
    """What the wheel should do, written the obvious way."""

    now_us: int
    entries: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # due, arrival, value
    arrivals: int = 0

    def insert(self, key: int, due_us: int, value: int) -> None:
        self.arrivals += 1
        self.entries[key] = (due_us, self.arrivals, value)

    def advance(self, now_us: int, limit: int | None) -> list[tuple[int, int, int]]:
        if now_us < self.now_us:
            return []
        self.now_us = now_us
        due = sorted(
            (due_us, arrival, key, value)
            for key, (due_us, arrival, value) in self.entries.items()
            if due_us <= now_us
        )[:limit]
        for _, _, key, _ in due:
            del self.entries[key]
        return [(due_us, key, value) for due_us, _, key, value in due]


class WheelMachine(RuleBasedStateMachine):
    """Clock steps are relative to the latest instant, and to what the wheel says is next."""

    @initialize(power=st.integers(10, 51), around_us=st.integers(-2_000, 2_000), base=st.booleans())
    def start(self, power: int, around_us: int, base: bool) -> None:
        """Near a roll-over of a digit, or at an instant of today."""
        start_us = max(0, (1 << power) + around_us) if base else START_US + around_us
        self.wheel = Wheel[int, int](start_us)
        self.model = SortedList(start_us)

    def instant(self, offset_us: int) -> int:
        return min(self.model.now_us + offset_us, LAST_US)

    def compare_advance(self, now_us: int, limit: int | None) -> None:
        fired = self.wheel.advance(now_us, limit)
        assert fired == self.model.advance(now_us, limit)

    @rule(key=keys, offset_us=offsets_us, value=values)
    def insert(self, key: int, offset_us: int, value: int) -> None:
        due_us = self.instant(offset_us)
        self.wheel.insert(key, due_us, value)
        self.model.insert(key, due_us, value)

    @rule(
        first=st.integers(100, 200),
        count=st.integers(1, 90),
        offset_us=offsets_us,
        gap=st.integers(0, 300),
    )
    def insert_many(self, first: int, count: int, offset_us: int, gap: int) -> None:
        """A crowd: slots with many entries, in falling order of due."""
        for step in range(count):
            due_us = self.instant(offset_us - step * gap)
            self.wheel.insert(first + step, due_us, step)
            self.model.insert(first + step, due_us, step)

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        assert self.wheel.cancel(key) == (self.model.entries.pop(key, None) is not None)

    @rule(value=values)
    def discard(self, value: int) -> None:
        doomed = [key for key, entry in self.model.entries.items() if entry[2] == value]
        for key in doomed:
            del self.model.entries[key]
        assert self.wheel.discard_where(lambda _, found: found == value) == len(doomed)

    @rule(step_us=st.integers(0, 3_000), limit=st.none() | st.integers(1, 5))
    def advance_a_little(self, step_us: int, limit: int | None) -> None:
        self.compare_advance(self.instant(step_us), limit)

    @rule(offset_us=offsets_us, limit=st.none() | st.integers(1, 100))
    def advance_or_step_back(self, offset_us: int, limit: int | None) -> None:
        self.compare_advance(self.instant(offset_us), limit)

    @precondition(lambda self: self.model.entries)
    @rule(around_us=st.integers(-1, 1), limit=st.none() | st.integers(1, 3))
    def advance_to_the_next_due(self, around_us: int, limit: int | None) -> None:
        next_us = min(due_us for due_us, _, _ in self.model.entries.values())
        self.compare_advance(min(next_us + around_us, LAST_US), limit)

    @rule(limit=st.integers(1, 30))
    def catch_up_in_bites(self, limit: int) -> None:
        for _ in range(3):
            self.compare_advance(self.model.now_us, limit)

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.wheel) == len(self.model.entries)
        for key, (due_us, _, value) in self.model.entries.items():
            assert self.wheel.get(key) == (due_us, value)

    @invariant()
    def never_oversleeps(self) -> None:
        next_us = self.wheel.next_due_us()
        if not self.model.entries:
            assert next_us is None
            return
        earliest_us = min(due_us for due_us, _, _ in self.model.entries.values())
        assert next_us is not None
        if len(self.model.entries) <= 64:
            assert next_us == earliest_us
        else:
            assert next_us <= earliest_us

    def teardown(self) -> None:
        self.compare_advance(LAST_US, None)
        assert not self.model.entries


TestWheel = WheelMachine.TestCase
TestWheel.settings = settings(max_examples=150, stateful_step_count=40)
