"""What is due and not yet taken: the run of one slot, merged with late arrivals."""

from random import Random

import pytest

from duly.wheel.due_queue import DueQueue


def test_the_run_and_late_arrivals_come_out_merged() -> None:
    queue = DueQueue[str]()
    queue.load({"c": 30, "a": 10, "e": 50})
    for key, due_us in (("d", 40), ("b", 20), ("zero", 0)):
        queue.push(key, due_us)
    assert len(queue) == 6
    assert queue.first_us() == 0
    assert queue.take(4) == ["zero", "a", "b", "c"]
    assert queue.first_us() == 40
    assert queue.take(9) == ["d", "e"]
    assert queue.first_us() is None
    assert queue.take(1) == []


def test_on_a_tie_the_first_inserted_comes_first() -> None:
    queue = DueQueue[str]()
    queue.load({"run 1": 5, "run 2": 5})
    queue.push("late 1", 5)
    queue.push("late 2", 5)
    assert queue.take(9) == ["run 1", "run 2", "late 1", "late 2"]


def test_a_cancelled_key_of_the_run_may_come_back_late() -> None:
    queue = DueQueue[str]()
    queue.load({"a": 10, "b": 20})
    queue.remove("a")
    queue.push("a", 30)
    assert queue.first_us() == 20
    assert queue.take(9) == ["b", "a"]
    with pytest.raises(KeyError):
        queue.remove("a")


def test_a_run_is_loaded_only_into_an_empty_queue() -> None:
    queue = DueQueue[str]()
    queue.load({"a": 10})
    with pytest.raises(AssertionError, match="only after"):
        queue.load({"b": 20})


@pytest.mark.parametrize("seed", range(5))
def test_order_survives_many_cancels(seed: int) -> None:
    """Enough of them that the heap is rebuilt without the cancelled, several times."""
    random = Random(seed)
    queue = DueQueue[int]()
    dues_us: dict[int, int] = {}
    for step in range(5_000):
        key = random.randrange(300)
        if dues_us.pop(key, None) is not None:
            queue.remove(key)
        if random.random() < 0.8:
            dues_us[key] = random.randrange(1_000) * 1_000 + step % 1_000  # no two are equal soon
            queue.push(key, dues_us[key])
        if step % 500 == 499:
            due_order = sorted(dues_us, key=dues_us.__getitem__)
            taken = queue.take(20)
            assert [dues_us[key] for key in taken] == [dues_us[key] for key in due_order[:20]]
            for key in taken:
                del dues_us[key]
            assert len(queue) == len(dues_us)
