"""What is held back for lack of room is looked at again, whatever the order in which batches are answered."""

import pytest
from firing_rig import due_row

from duly.actors.holds import Holds
from duly.actors.line import Line
from duly.storage.claims import Held


@pytest.mark.parametrize("full_first", [True, False])
def test_a_key_that_one_of_two_batches_finds_full_is_tried_again(full_first: bool) -> None:
    """Nobody may ever tell that it is free: that is looked for, after a while."""
    now = 0.0
    queue = Line(100, lambda: now)
    holds = Holds(lambda: now, {"q": queue}, lambda _: None)
    for _ in range(6):
        queue.ready.add(due_row(-1, key="k"))
    one, other = queue.take(2), queue.take(2)
    assert len(one) == len(other) == 2
    held: dict[object, Held] = {row.id: "full" for row in other}
    answers = [(other, held), (one, {})]
    for rows, without in answers if full_first else reversed(answers):
        holds.tried("q", rows, without, limited=False)  # type: ignore[arg-type]
    assert queue.take(10) == []
    now = 1.0
    holds.look()
    assert queue.take(10) != []


def test_waits_end_with_what_waits() -> None:
    now = 0.0
    queue = Line(100, lambda: now)
    holds = Holds(lambda: now, {"q": queue}, lambda _: None)
    rows = [due_row(-1, key=f"customer {number}") for number in range(50)]
    for row in rows:
        queue.ready.add(row)
    held: dict[object, Held] = {row.id: "full" for row in rows}
    holds.tried("q", queue.take(50), held, limited=False)  # type: ignore[arg-type]
    now = 1.0
    holds.look()
    queue.ready.keep_slots(frozenset())
    for _ in range(3):
        now += 3.0
        holds.look()
    assert holds.wait_s(1_000.0) == 1_000.0
    assert holds._waits._waits == {}
