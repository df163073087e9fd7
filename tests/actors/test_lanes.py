"""The order of due rows: priority, fairness keys in turn, due time."""

from collections import defaultdict
from typing import Any

import pytest
from firing_rig import due_row
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.actors.lanes import Lanes, place_of
from duly.storage.slots import DueRow

ROWS = st.lists(
    st.builds(
        due_row,
        st.integers(0, 9),
        priority=st.sampled_from((3, 5)),
        fair=st.sampled_from((None, "a", "b", "c")),
    ),
    max_size=60,
)


def filled(rows: list[DueRow]) -> Lanes:
    lanes = Lanes()
    for row in rows:
        lanes.add(place_of(row))
    return lanes


def drained(lanes: Lanes) -> list[DueRow]:
    taken = []
    while (place := lanes.pop()) is not None:
        taken.append(place[-1])
    return taken


def by_due(rows: list[DueRow]) -> list[DueRow]:
    return sorted(rows, key=lambda row: (row.next_run_at, row.id))


@given(ROWS)
@settings(deadline=None)
def test_each_priority_takes_its_keys_in_turn_and_each_key_by_due_time(rows: list[DueRow]) -> None:
    taken = drained(filled(rows))
    assert sorted(taken) == sorted(rows)
    assert [row.priority for row in taken] == sorted((r.priority for r in rows), reverse=True)
    for priority in (3, 5):
        some = [row for row in taken if row.priority == priority]
        left = defaultdict(list)
        for row in some:
            left[row.fairness_key].append(row)
        for lane in left.values():
            assert lane == by_due(lane)
        # Of those that have rows left, nobody is served a second time before each was once.
        served: dict[Any, int] = defaultdict(int)
        for row in some:
            served[row.fairness_key] += 1
            waiting = [key for key in left if served[key] < len(left[key])]
            assert all(served[row.fairness_key] - served[key] <= 1 for key in waiting)


@given(ROWS, st.integers(0, 40))
@settings(deadline=None)
def test_what_gives_way_is_of_low_priority_and_of_long_lanes(rows: list[DueRow], keep: int) -> None:
    lanes = filled(rows)
    dropped = [place[-1] for place in lanes.trim(keep)]
    kept = drained(lanes)
    assert sorted(kept + dropped) == sorted(rows)
    assert len(kept) == min(len(rows), keep)
    if dropped:
        lowest = min(row.priority for row in kept) if kept else 9
        assert max(row.priority for row in dropped) <= lowest
    for priority in (3, 5):
        for key in (None, "a", "b", "c"):
            is_of = lambda row: (row.priority, row.fairness_key) == (priority, key)  # noqa: B023
            gone, stayed = list(filter(is_of, dropped)), list(filter(is_of, kept))
            if gone and stayed:
                assert max(r.next_run_at for r in stayed) <= min(r.next_run_at for r in gone)


@given(ROWS, st.data())
@settings(deadline=None)
def test_what_is_taken_out_leaves_the_others_as_they_were(rows: list[DueRow], data: Any) -> None:
    lanes = filled(rows)
    gone = data.draw(st.lists(st.sampled_from(rows), unique=True)) if rows else []
    for row in gone:
        lanes.discard(place_of(row))
    assert len(lanes) == len(rows) - len(gone)
    assert sorted(drained(lanes)) == sorted(row for row in rows if row not in gone)
    assert lanes.rank() is None


def test_ten_of_one_tenant_are_not_behind_ten_thousand_of_another() -> None:
    crowd = [due_row(number, fair="crowd") for number in range(10_000)]
    few = [due_row(20_000 + number, fair="few") for number in range(10)]
    taken = drained(filled(crowd + few))
    assert {row.id for row in few} <= {row.id for row in taken[:20]}


def test_a_short_lane_stays_when_others_give_way() -> None:
    lanes = filled([due_row(number, fair="crowd") for number in range(1000)])
    small = place_of(due_row(5000, fair="few"))
    assert not lanes.is_below_all(small)
    assert lanes.is_below_all(place_of(due_row(5000, fair="crowd")))
    lanes.add(small)
    lanes.trim(10)
    assert small in list(lanes)


def test_many_short_lanes_keep_as_much_as_few_long_ones() -> None:
    lanes = filled([due_row(number, fair=f"customer {number}") for number in range(2_000)])
    dropped = lanes.trim(900)
    assert len(lanes) == 900
    assert len(dropped) == 1_100


@pytest.mark.parametrize("keys", [(None, "a"), ("a", "a")])
def test_fair_rows_are_behind_no_due_time_and_hold_up_none(keys: tuple[Any, ...]) -> None:
    fair = filled([due_row(-1000, fair=key) for key in keys])
    plain = filled([due_row(number) for number in (-2000, -1, 5)])
    best, last = fair.rank(), fair.rank_at(2)
    assert best is not None
    assert last is not None
    for number in (1, 2, 3):
        place = plain.rank_at(number)
        assert place is not None
        assert best < place < last
    better = filled([due_row(0, priority=6)]).rank()
    assert better is not None
    assert better < best
