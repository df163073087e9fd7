"""Rows with concurrency keys: what waits for its key takes nobody's place."""

import random

from firing_rig import due_row

from duly.actors.gate import PROBE
from duly.actors.key_lot import KEPT
from duly.actors.ready import FULL, ReadyQueue
from duly.storage.slots import DueRow


def keyed(count: int, key: str = "k", first_s: int = 0) -> list[DueRow]:
    return [due_row(first_s + number, key=key) for number in range(count)]


def filled(rows: list[DueRow]) -> ReadyQueue:
    queue = ReadyQueue()
    for row in rows:
        queue.add(row)
    return queue


def test_some_of_a_key_stand_in_line_and_more_the_more_are_claimed() -> None:
    queue = filled(keyed(200))
    assert len(queue) == PROBE
    assert queue.tried(queue.take(100), []) == set()
    assert len(queue) == 2 * PROBE
    for _ in range(10):
        queue.tried(queue.take(100), [])
    assert len(queue) == 0
    assert queue.idle


def test_a_key_without_room_waits_and_the_others_go_on() -> None:
    rows = keyed(20)
    queue = filled(rows)
    first = queue.take(100)
    assert queue.tried(first, first[3:]) == {"k"}
    other = due_row(99, priority=0)
    queue.add(other)
    queue.add(due_row(-5, key="k"))
    assert queue.take(100) == [other]
    assert not queue.idle
    queue.free("k")
    assert len(queue.take(100)) == PROBE


def test_a_place_that_was_freed_while_a_claim_was_under_way_is_not_missed() -> None:
    queue = filled(keyed(20))
    rows = queue.take(100)
    queue.free("k")
    assert queue.tried(rows, rows) == set()
    again = queue.take(100)
    assert len(again) == PROBE
    assert queue.tried(again, again) == {"k"}, "but once only"


def test_of_one_key_only_so_many_are_kept_and_the_rest_is_fetched() -> None:
    rows = keyed(KEPT + 500)
    random.Random(1).shuffle(rows)
    queue = filled(rows)
    assert queue.saturated_keys == {"k"}
    assert queue.hungry_keys == []
    assert not queue.saturated
    some = queue.take(100)
    queue.tried(some, some)
    for _ in range(200):
        queue.free("k")
        queue.tried(queue.take(100), [])
    assert queue.hungry_keys == ["k"]
    assert not queue.idle, "the store has more"
    queue.key_asked("k")
    queue.key_refilled("k", complete=True)
    assert queue.saturated_keys == set()
    assert queue.idle


def test_what_is_turned_away_after_the_question_is_asked_for_again() -> None:
    queue = filled(keyed(KEPT + 500))
    queue.key_asked("k")
    queue.add(due_row(9_999, key="k"))
    queue.key_refilled("k", complete=True)
    assert queue.saturated_keys == {"k"}


def test_what_waits_for_keys_is_bounded_in_all_and_leaves_room_for_others() -> None:
    queue = ReadyQueue()
    for number in range(FULL // 60 + 100):
        some = keyed(60, f"k{number}")
        for row in some:
            queue.add(row)
        taken = queue.take(100)
        queue.tried(taken, taken)
    queue.add(due_row(0))
    assert len(queue) == 1
    assert len(queue._rows) <= FULL + 2
    assert queue.saturated_keys


def test_slots_that_are_lost_take_their_rows_along() -> None:
    queue = filled(keyed(100))
    rows = queue.take(4)
    queue.keep_slots(frozenset())
    assert len(queue) == 0
    assert not queue.idle, "some are being claimed"
    assert queue.tried(rows, []) == set()
    assert queue.idle
    queue.add(due_row(1, key="k"))
    assert len(queue) == 1


def test_a_newer_version_replaces_a_row_that_waits_also_under_another_key() -> None:
    queue = filled(keyed(PROBE))
    queue.add(due_row(50, number=1, key="k"))
    queue.add(due_row(50, number=1, key=None, version=1))
    assert len(queue) == PROBE + 1
    queue.add(due_row(50, number=1, key="k", version=2))
    assert len(queue) == PROBE
    assert all(row.version == 0 for row in queue.take(100))
