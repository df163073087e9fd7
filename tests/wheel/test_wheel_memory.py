"""What the wheel costs besides time: memory after storms, and the garbage collector's view of it."""

import gc
import tracemalloc
from collections.abc import Iterator

import psutil
import pytest

from duly.wheel.wheel import Wheel

START_US = 1_790_000_000_000_000
MEGABYTE = 1_000_000


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("span_us", [0, 5_000, 100_000_000])
def test_a_reschedule_storm_of_few_keys_leaves_nothing_behind(span_us: int) -> None:
    """Past dues, dues within one tick's reach, and dues all over the horizon."""
    wheel = Wheel[int, int](START_US)
    for key in range(4):
        wheel.insert(key, START_US, 0)
    for step in range(50_000):
        wheel.insert(step & 3, START_US + (step * 7_919 % span_us if span_us else -step), step)
    assert len(wheel) == 4
    assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    assert len(wheel.advance(START_US + 100_000_000)) == 4


def test_a_million_reschedules_of_few_keys_do_not_grow_the_process() -> None:
    wheel = Wheel[int, int](START_US)
    process = psutil.Process()
    before = process.memory_info().rss
    for step in range(1_000_000):
        wheel.insert(step & 63, START_US + (step * 7_919 & 0x7FF_FFFF), step)
    assert len(wheel) == 64
    assert process.memory_info().rss - before < 16 * MEGABYTE  # a million entries take 150


@pytest.mark.usefixtures("traced")
def test_slots_that_were_crowded_once_give_the_memory_back() -> None:
    """A crowd that keeps being put off leaves one straggler in each slot it was in."""
    wheel = Wheel[int, int](START_US)
    crowd = range(1_000)
    for key in crowd:
        wheel.insert(key, START_US, 0)
    before = tracemalloc.get_traced_memory()[0]
    for second in range(1, 101):
        due_us = START_US + second * 2_000_000
        for key in crowd:
            wheel.insert(key, due_us, 0)
        wheel.insert(1_000_000 + second, due_us, 0)
    after = tracemalloc.get_traced_memory()[0]
    assert after - before < MEGABYTE / 2  # without shrinking it is 100 dicts of 1000: 5 MB
    assert len(wheel.advance(START_US + 300_000_000)) == 1_100


@pytest.mark.usefixtures("traced")
def test_cancels_during_a_catch_up_leave_nothing_behind() -> None:
    wheel = Wheel[int, int](START_US)
    for key in range(5_000):
        wheel.insert(key, START_US + 10, 0)
    assert len(wheel.advance(START_US + 10, limit=10)) == 10
    for key in range(5_000):
        wheel.cancel(key)
    assert wheel.next_due_us() is None
    for step in range(20_000):
        wheel.insert(step & 3, START_US - step, step)
    assert [key for _, key, _ in wheel.advance(START_US + 10)] == [3, 2, 1, 0]
    assert tracemalloc.get_traced_memory()[1] < 5 * MEGABYTE


def test_the_garbage_collector_does_not_see_the_entries() -> None:
    """Else each full collection would stop a node with a million entries for 30 ms and more."""
    wheel = Wheel[bytes, tuple[int, int, int, str]](START_US)
    gc.collect()
    before = len(gc.get_objects())
    for key in range(50_000):
        due_us = START_US + key * 2_003 - 10_000_000
        wheel.insert(key.to_bytes(16), due_us, (key, key % 256, 5, "default"))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert len(wheel) == 50_000
