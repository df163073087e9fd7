"""The queue of due tasks that wait for capacity."""

import random
import time
from datetime import datetime

from firing_rig import SLOTS, at, due_row

from duly.actors.key_lot import KEPT
from duly.actors.ready import BROUGHT, FULL, LOW, ReadyQueue, full_of
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us


def filled(count: int, priority: int = 5) -> ReadyQueue:
    queue = ReadyQueue()
    for number in range(count):
        queue.add(fallen_due(due_row(number, priority=priority)))
    return queue


def fallen_due(row: DueRow) -> DueRow:
    """As it is passed on when its time has come."""
    return row._replace(ticked_us=to_us(row.next_run_at))


def rank(row: DueRow) -> tuple[int, datetime]:
    return -row.priority, row.next_run_at


def test_takes_by_priority_then_due_time() -> None:
    rows = [due_row(number, priority=number % 3) for number in range(300)]
    queue = ReadyQueue()
    for row in random.Random(1).sample(rows, len(rows)):
        queue.add(row)
    taken = queue.take(100) + queue.take(1000)
    assert taken == sorted(rows, key=rank)
    assert queue.take(1) == []


def test_takes_no_further_than_the_rank_that_is_given() -> None:
    queue = ReadyQueue()
    for number in range(10):
        queue.add(due_row(number, priority=5))
        queue.add(due_row(number, priority=7))
    limit = queue.rank(12)
    assert len(queue.take(100, limit)) == 12
    assert queue.take(100, limit) == []
    assert len(queue) == 8


def test_a_rank_is_the_same_scale_whatever_the_queue_holds() -> None:
    rows = [
        due_row(due_s, priority=priority)
        for priority in (9, 5, 0)
        for due_s in (-60 * 86_400 * 365, 0, 0.002, 8, 250 * 86_400 * 365)
    ]
    ranks = []
    for row in rows:
        queue = ReadyQueue()
        assert queue.rank() is None
        queue.add(row)
        rank_alone = queue.rank()
        assert rank_alone is not None
        ranks.append(rank_alone)
    assert ranks == sorted(set(ranks)), "each after the one before"
    assert all(0 <= one < 2**53 for one in ranks), "exact in Lua"


def test_the_rank_of_a_place_is_that_of_the_last_if_there_are_fewer() -> None:
    queue = filled(10)
    tenth = queue.rank(10)
    assert queue.rank(1) != tenth
    assert queue.rank(11) == queue.rank(1000) == tenth
    queue.keep_slots(frozenset())
    assert queue.rank() is None


def test_ties_go_in_order_of_submission() -> None:
    queue = ReadyQueue()
    for number in (3, 1, 2):
        queue.add(due_row(5, number=number))
    assert [row.id.int for row in queue.take(3)] == [1, 2, 3]


def test_a_row_is_held_once_and_a_newer_version_replaces_it() -> None:
    queue = ReadyQueue()
    queue.add(due_row(5, number=1, priority=5, version=1))
    queue.add(due_row(5, number=1, priority=5, version=1))
    queue.add(due_row(9, number=2, priority=7))
    queue.add(due_row(7, number=1, priority=9, version=2))
    queue.add(due_row(5, number=1, priority=5, version=1))
    assert [(row.id.int, row.version) for row in queue.take(10)] == [(1, 2), (2, 0)]


def test_what_does_not_fit_is_turned_away_unless_it_is_better() -> None:
    queue = filled(FULL)
    assert not queue.saturated
    queue.add(due_row(FULL + 1))
    assert queue.saturated
    assert len(queue) == FULL
    best = due_row(FULL + 1, priority=9)
    queue.add(best)
    assert len(queue) == FULL - 999
    assert queue.take(1) == [best]


def test_a_full_queue_costs_little_whatever_comes() -> None:
    """Ten thousand worse rows, then ten thousand better ones: no sort for each."""
    queue = filled(FULL)
    worse = [due_row(FULL + number) for number in range(10_000)]
    better = [due_row(number, priority=9 - number % 5) for number in range(10_000)]
    began = time.process_time()
    for row in worse + better:
        queue.add(row)
    assert time.process_time() - began < 2.0
    assert len(queue) <= FULL
    assert [row.priority for row in queue.take(2000)] == [9] * 2000


def test_hungry_when_little_is_left_until_all_was_read() -> None:
    queue = filled(FULL + 1)
    assert queue.hungry, "what came first need not be the best that there is"
    queue.asked(0)
    queue.refilled(complete=False)
    assert not queue.hungry
    queue.take(FULL - LOW)
    assert queue.hungry
    queue.asked(0)
    queue.refilled(complete=False)
    assert queue.saturated
    queue.asked(0)
    queue.refilled(complete=True)
    assert not queue.saturated
    assert not queue.hungry


def test_a_row_turned_away_after_the_question_keeps_it_saturated() -> None:
    queue = filled(FULL + 1)
    queue.asked(0)
    queue.add(due_row(FULL + 2))
    queue.refilled(complete=True)
    assert queue.saturated


def test_keeps_only_slots_that_are_ours() -> None:
    queue = filled(80)
    ours = frozenset(SLOTS[:2])
    queue.keep_slots(ours)
    back = [due_row(number, number=number) for number in range(1000, 1008)]
    for row in back:
        queue.add(row)
    taken = queue.take(1000)
    assert len(taken) == 20 + len(back)
    assert {row.slot for row in taken if row not in back} == set(ours)


def test_what_is_due_after_a_row_that_was_turned_away_does_not_run_before_it() -> None:
    queue = filled(FULL)
    queue.add(due_row(FULL + 1))
    queue.asked(0)
    queue.add(due_row(FULL + 1))
    queue.refilled(complete=False)
    queue.take(FULL - 5_000)
    queue.add(due_row(FULL + 2))
    assert len(queue) == 5_000, "there is room, but the store has a better one"
    same, better = due_row(FULL + 1), due_row(FULL + 3, priority=6)
    queue.add(same)
    queue.add(better)
    queue.add(due_row(FULL + 4, fair="has its turn"))
    assert len(queue) == 5_003
    assert queue.take(1) == [better]


def test_what_came_while_the_store_was_read_does_not_run_before_what_is_still_there() -> None:
    queue = filled(FULL + 1)
    queue.take(FULL - LOW)
    queue.asked(0)
    queue.add(due_row(3 * FULL))
    brought = [due_row(FULL + number) for number in range(100)]
    for row in brought:
        queue.add(row, brought=True)
    queue.refilled(complete=False, last=brought[-1])
    queue.add(due_row(2 * FULL))
    assert queue.saturated
    assert queue.take(FULL)[-1] == brought[-1]


def test_all_is_taken_in_again_once_the_store_has_no_more() -> None:
    queue = filled(FULL + 1)
    queue.take(FULL)
    turned_away = due_row(FULL + 5)
    queue.add(turned_away)
    assert len(queue) == 0
    queue.asked(0)
    queue.add(turned_away, brought=True)
    queue.refilled(complete=True)
    queue.add(due_row(FULL + 9))
    assert len(queue) == 2
    assert not queue.saturated


def test_what_falls_due_while_the_store_is_read_waits_until_that_is_over() -> None:
    """However many that are: as many as are kept aside, and more."""
    for count in (10, FULL):
        queue = filled(FULL + 1)
        queue.take(FULL)
        queue.asked(0)
        fallen = [due_row(2 * FULL + number) for number in range(count)]
        for row in fallen:
            queue.add(row)
        assert len(queue) == 0, "the store has better ones"
        brought = due_row(FULL)
        queue.add(brought, brought=True)
        assert queue.take(FULL) == [brought]
        queue.refilled(complete=True)
        assert queue.take(FULL) == (fallen if count == 10 else [])
        assert queue.saturated == queue.asks(1) == (count == FULL)


def test_what_fell_due_before_the_store_was_read_is_not_taken_twice() -> None:
    """It may have been cancelled since, or be what is brought; but not if it was told of ahead of its time."""
    queue = filled(FULL + 1)
    queue.take(FULL)
    now_us = to_us(at(2 * FULL))
    seen = due_row(2 * FULL)._replace(ticked_us=now_us)
    ahead = due_row(2 * FULL + 0.04)._replace(ticked_us=now_us)
    queue.add(seen)
    queue.add(ahead)
    queue.asked(0)
    queue.refilled(complete=True, until_us=now_us)
    assert queue.take(FULL) == [ahead]


def test_a_store_that_cannot_be_read_holds_up_nobody_for_ever() -> None:
    queue = filled(FULL + 1)
    queue.take(FULL)
    fallen = [due_row(2 * FULL + number) for number in range(10)]
    for now in range(1, 12):
        queue.asked(now * 1_000_000)
        queue.add(fallen[min(now - 1, 8)])
        assert len(queue) == 0
    queue.asked(11_000_001)
    queue.add(fallen[9])
    assert queue.take(FULL) == fallen
    assert queue.hungry


def test_of_a_queue_that_was_paused_nothing_goes_before_what_is_in_the_store() -> None:
    queue = filled(10)
    queue.leave_to_store()
    queue.add(due_row(20))
    assert len(queue) == 0
    assert queue.hungry


def test_a_later_version_of_what_fell_due_meanwhile_counts() -> None:
    queue = filled(FULL + 1)
    queue.take(FULL)
    queue.asked(0)
    for version in (1, 2, 1):
        queue.add(due_row(2 * FULL, number=1, version=version))
    queue.refilled(complete=True)
    assert [row.version for row in queue.take(10)] == [2]


def test_asks_again_at_once_only_if_that_was_of_avail() -> None:
    queue = filled(FULL + 1)
    queue.take(FULL)
    known = due_row(1)
    queue.asked(1)
    queue.add(known, brought=True)
    assert not queue.asks(1_900_000), "it is being read"
    assert queue.asks(2_000_001), "the question may be lost"
    queue.refilled(complete=False, until_us=1)
    assert queue.asks(2)
    queue.asked(2)
    queue.add(known, brought=True)
    queue.refilled(complete=False, until_us=2)
    assert queue.hungry
    assert not queue.asks(900_000)
    assert queue.asks(1_000_002)


def test_what_a_refill_brings_and_does_not_stay_is_nothing_new() -> None:
    """Of more keys than the store can be told of it comes with each refill: these would follow each other at once."""
    queue = filled(FULL + 1)
    queue.take(FULL)
    for number in range(2 * KEPT):
        queue.add(due_row(number, key="k"))
    queue.asked(1)
    queue.add(due_row(9e6, key="k"), brought=True)
    for row in queue.take(1):
        queue.add(row, again=True)
    queue.refilled(complete=False, until_us=1)
    assert queue.hungry
    assert not queue.asks(900_000)


def test_a_clock_that_was_set_back_stops_no_questions() -> None:
    queue = filled(FULL + 1)
    queue.take(FULL)
    queue.asked(3_600_000_000)
    assert queue.asks(10)
    queue.asked(10)
    queue.refilled(complete=False, last=due_row(FULL), until_us=10)
    assert not queue.asks(900_000), "it was to no avail"
    assert queue.asks(1_000_010)


def test_the_answer_to_an_earlier_question_is_not_taken_for_that_to_the_last() -> None:
    """It was put twice, as may be where an answer takes long."""
    queue = filled(FULL + 1)
    queue.take(FULL)
    queue.asked(10)
    queue.asked(20)
    queue.refilled(complete=False, last=due_row(FULL), until_us=10)
    # More than is kept aside; the second answer, which is on its way, knows nothing of them.
    for number in range(FULL):
        queue.add(fallen_due(due_row(2 * FULL + number)))
    queue.asked(30)
    queue.refilled(complete=True, until_us=20)
    assert queue.saturated
    later = due_row(4 * FULL)
    queue.add(later)
    assert later not in queue.take(FULL)


def test_a_queue_that_begins_in_the_midst_of_a_refill_asks_for_what_it_leaves_to_the_store() -> (
    None
):
    queue = filled(10)
    queue.refilled(complete=False, last=due_row(20))
    queue.add(due_row(30))
    assert len(queue) == 10
    assert queue.hungry


def test_many_queues_hold_less_of_each() -> None:
    """A row takes half a kilobyte: forty queues of 25,000 would take the node's memory several times."""
    assert full_of(0) == full_of(4) == FULL
    assert full_of(40) == BROUGHT
    queues = 1
    queue = ReadyQueue(lambda: full_of(queues))
    for number in range(15_000):
        queue.add(due_row(number))
    assert not queue.saturated
    queues = 40
    queue.add(due_row(0))
    assert queue.saturated
    assert BROUGHT - 1_000 <= len(queue) <= BROUGHT
    for number in range(5_000):
        queue.add(due_row(20_000 + number))
    assert len(queue) <= BROUGHT
