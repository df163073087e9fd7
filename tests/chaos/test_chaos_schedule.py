"""The schedule of faults: all of it follows from the seed, and none of it outlasts the run."""

from collections import defaultdict
from itertools import pairwise

from chaos_lab.schedule import SORTS, Fault, plan, resource


def test_a_seed_makes_one_schedule() -> None:
    assert plan(7, 600, 4.0) == plan(7, 600, 4.0)
    assert plan(7, 600, 4.0) != plan(8, 600, 4.0)


def test_a_long_run_has_faults_of_every_kind_that_are_healed_in_time() -> None:
    for seed in range(20):
        faults = plan(seed, 600, 4.0)
        assert len(faults) >= 100
        assert all(fault.at + fault.lasts <= 600 for fault in faults)
    assert {fault.kind for seed in range(20) for fault in plan(seed, 600, 4.0)} == set(SORTS)


def test_no_two_faults_touch_one_thing_at_once() -> None:
    by_thing: dict[object, list[Fault]] = defaultdict(list)
    for fault in plan(7, 3_600, 2.0):
        by_thing[resource(fault)].append(fault)
    for faults in by_thing.values():
        for before, after in pairwise(faults):
            assert before.at + before.lasts < after.at
