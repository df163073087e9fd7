"""From where on a queue is read, where to read it from its beginning takes long."""

import pytest
from firing_rig import at, due_row

from duly.actors.floors import Floors


@pytest.fixture
def seconds() -> list[float]:
    return [100.0]


@pytest.fixture
def floors(seconds: list[float]) -> Floors:
    return Floors(lambda: seconds[0])


def test_what_is_read_fast_is_read_from_the_beginning(floors: Floors) -> None:
    floors.read("q", [], [due_row(-5)], None, 0.01)
    assert floors.of("q", []) is None


def test_what_is_read_slowly_is_read_on_from_its_first_row_for_a_while(
    floors: Floors, seconds: list[float]
) -> None:
    floors.read("q", [], [due_row(-3), due_row(-5), due_row(-9, priority=7)], None, 2.0)
    assert floors.of("q", []) == at(-5)
    assert floors.of("r", []) is None
    floors.read("q", [], [due_row(-2), due_row(-1)], at(-5), 0.01)
    assert floors.of("q", []) == at(-2)
    floors.read("q", [], [due_row(0, priority=7)], at(-2), 0.01)
    assert floors.of("q", []) == at(-2)
    seconds[0] += 19.9
    assert floors.of("q", []) == at(-2)
    seconds[0] += 0.2
    assert floors.of("q", []) is None
    floors.read("q", [], [due_row(-1)], None, 0.01)
    assert floors.of("q", []) is None


def test_rows_of_a_key_that_was_left_out_may_have_been_due_before(floors: Floors) -> None:
    floors.read("q", ["a", "b"], [due_row(-5)], None, 2.0)
    assert floors.of("q", ["a", "b", "c"]) == at(-5)
    assert floors.of("q", ["a"]) is None
    floors.read("q", ["a", "b", "c"], [due_row(-2)], at(-5), 0.01)
    assert floors.of("q", ["a", "b"]) is None
    assert floors.of("q", ["a", "b", "c"]) == at(-2)


def test_rows_of_slots_that_were_gained_too(floors: Floors) -> None:
    floors.read("q", [], [due_row(-5)], None, 2.0)
    floors.clear()
    assert floors.of("q", []) is None


def test_without_a_row_of_the_usual_priority_nothing_is_known(floors: Floors) -> None:
    floors.read("q", [], [due_row(-5, priority=9)], None, 2.0)
    assert floors.of("q", []) is None
