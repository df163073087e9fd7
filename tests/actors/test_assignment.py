"""The assignment of slots: the same everywhere, even, and steady."""

import random

from hypothesis import given
from hypothesis import strategies as st

from duly.actors.assignment import assign

SLOTS = 256
nodes = st.sets(st.text(min_size=1, max_size=20), min_size=1, max_size=40)


def loads(owners: dict[int, str], names: set[str]) -> list[int]:
    return [list(owners.values()).count(name) for name in names]


def moves(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before[slot] != after[slot] for slot in range(SLOTS))


@given(nodes)
def test_every_slot_has_a_node_and_shares_differ_by_one_at_most(names: set[str]) -> None:
    owners = assign(range(SLOTS), names)
    assert sorted(owners) == list(range(SLOTS))
    assert max(loads(owners, names)) - min(loads(owners, names)) <= 1


@given(nodes, st.randoms())
def test_every_node_finds_the_same_answer(names: set[str], dice: random.Random) -> None:
    shuffled = list(names)
    dice.shuffle(shuffled)
    assert assign(range(SLOTS), shuffled) == assign(range(SLOTS), names)


@given(nodes, st.text(min_size=1, max_size=20))
def test_a_join_moves_its_share_and_a_tenth_at_most(names: set[str], newcomer: str) -> None:
    before, after = assign(range(SLOTS), names), assign(range(SLOTS), names | {newcomer})
    share = 0 if newcomer in names else -(-SLOTS // (len(names) + 1))
    assert moves(before, after) <= share + SLOTS // 10


@given(nodes)
def test_a_leave_moves_its_share_and_a_tenth_at_most(names: set[str]) -> None:
    leaver = min(names)
    if len(names) == 1:
        assert assign(range(SLOTS), names - {leaver}) == {}
        return
    before, after = assign(range(SLOTS), names), assign(range(SLOTS), names - {leaver})
    assert moves(before, after) <= list(before.values()).count(leaver) + SLOTS // 10
