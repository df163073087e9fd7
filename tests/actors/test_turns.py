"""Which slots are read from their beginning: all while that is fast, else some at a time."""

from collections.abc import Sequence

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
    turns = Turns(LIMIT_S)
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
    turns = Turns(LIMIT_S)
    sizes = [len(read(turns, range(owned), per_slot_s)) for _ in range(20)]
    for size in sizes[10:]:
        assert size * per_slot_s <= LIMIT_S or size == 1
        assert size == owned or size * 8 * per_slot_s > LIMIT_S / 2


def test_when_it_is_fast_again_all_are_read_again() -> None:
    turns = Turns(LIMIT_S)
    for _ in range(12):
        read(turns, range(256), 1.0)
    assert len(read(turns, range(256), 0)) == 1
    for _ in range(8):
        read(turns, range(256), 0)
    assert len(read(turns, range(256), 0)) == 256


def test_slots_that_come_and_go_do_not_keep_others_from_their_turn() -> None:
    turns = Turns(LIMIT_S)
    turns.took(range(256), 1.0)
    seen: set[int] = set()
    for number in range(6):
        seen |= set(read(turns, [slot for slot in range(256) if slot % 7 != number], 0.001))
    assert seen == set(range(256))
    assert turns.take([]) == []
    turns.took([], 1.0)
    assert turns.take([3]) == [3]
