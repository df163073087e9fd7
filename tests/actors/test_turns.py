"""Which slots are read from their beginning: all while that is fast, else some at a time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.actors.turns import Turns

LIMIT_S = 0.1


def read(turns: Turns, slots: Sequence[int], per_slot_s: float) -> list[int]:
    some = turns.take(slots)
    turns.took(some, len(some) * per_slot_s)
    return some


@given(
    slots=st.sets(st.integers(0, 255), min_size=1),
    costs=st.lists(st.floats(0, 0.2), min_size=1, max_size=300),
)
def test_each_slot_has_its_turn_as_often_as_the_others(slots: set[int], costs: list[float]) -> None:
    turns = Turns(LIMIT_S, 256)
    counts = dict.fromkeys(slots, 0)
    for cost in costs:
        some = read(turns, sorted(slots), cost)
        assert some
        assert len(set(some)) == len(some)
        for slot in some:
            counts[slot] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


@given(per_slot_s=st.floats(1e-6, LIMIT_S), owned=st.integers(1, 256))
def test_a_turn_takes_no_longer_than_its_limit_soon(per_slot_s: float, owned: int) -> None:
    turns = Turns(LIMIT_S, 256)
    sizes = [len(read(turns, range(owned), per_slot_s)) for _ in range(20)]
    for size in sizes[10:]:
        assert size * per_slot_s <= LIMIT_S or size == 1
        assert size == owned or size * 2 * per_slot_s > LIMIT_S / 2


@given(costs=st.lists(st.floats(0, 10), min_size=60, max_size=60), most=st.integers(1, 16))
def test_however_long_it_takes_each_slot_has_its_turn_within_so_many(
    costs: list[float], most: int
) -> None:
    turns = Turns(LIMIT_S, most)
    waits = dict.fromkeys(range(256), 0)
    for cost in costs:
        some = turns.take(range(256))
        turns.took(some, cost)
        waits = {slot: 0 if slot in some else wait + 1 for slot, wait in waits.items()}
        assert max(waits.values()) < most


@pytest.mark.parametrize("seconds", [0.02, 0.06, 0.3])
def test_what_takes_long_whatever_is_read_is_not_read_in_turns(seconds: float) -> None:
    """A busy server, or one that is far away."""
    turns = Turns(LIMIT_S, 16)
    whole = 0
    for _ in range(200):
        some = turns.take(range(256))
        whole += len(some) == 256
        turns.took(some, seconds)
    assert whole >= 190


def test_what_cannot_be_read_in_time_is_read_in_parts_however_small() -> None:
    turns = Turns(LIMIT_S, 16)
    sizes = []
    for _ in range(12):
        some = turns.take(range(256))
        sizes.append(len(some))
        if len(some) > 4:
            turns.failed(some, 5.0)
        else:
            turns.took(some, 2.0)
    assert sizes[:8] == [256, 128, 64, 32, 16, 8, 4, 8]
    turns.failed([], 5.0)
    turns = Turns(LIMIT_S, 16)
    turns.failed(range(256), 0.001)  # nobody there
    assert len(turns.take(range(256))) == 256


def test_when_it_is_fast_again_all_are_read_again() -> None:
    turns = Turns(LIMIT_S, 256)
    for _ in range(12):
        read(turns, range(256), 1.0)
    assert len(read(turns, range(256), 0)) == 1
    for _ in range(8):
        read(turns, range(256), 0)
    assert len(read(turns, range(256), 0)) == 256


def test_slots_that_come_and_go_do_not_keep_others_from_their_turn() -> None:
    turns = Turns(LIMIT_S, 256)
    turns.took(range(256), 1.0)
    seen: set[int] = set()
    for number in range(6):
        seen |= set(read(turns, [slot for slot in range(256) if slot % 7 != number], 0.001))
    assert seen == set(range(256))
    assert turns.take([]) == []
    turns.took([], 1.0)
    assert turns.take([3]) == [3]
