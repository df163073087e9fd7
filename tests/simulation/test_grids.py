"""The judge of periodic tasks, on commits that are written down here."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from simulated.grids import Grids
from simulated.store import Row, Store

ID = UUID(int=1)
BEGAN = datetime(2026, 9, 21, 14, 30, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def task(schedule: dict[str, object], **facts: object) -> Row:
    return {
        "id": ID, "type": "t", "queue": "q", "schedule": json.dumps(schedule), "created_at": BEGAN,
        "updated_at": BEGAN, "status": "pending", "begun": False, "occurrence": after(1), **facts,
    }  # fmt: skip


def ended(grids: Grids, row: Row, *runs: tuple[float, str]) -> list[str]:
    """What is said of the task's end as `row`, with runs of these occurrences."""
    store = Store(1, lambda: BEGAN)
    for token, (at, outcome) in enumerate(runs, start=1):
        store.record(row, token, 1, outcome, occurrence=after(at))
        assert grids.recorded(store.runs[-1]) is None
    store.finished[ID] = row
    return list(grids.check_end(store))


@pytest.mark.parametrize(("finished_s", "is_owed"), [(2.3, False), (2.6, True)])
def test_a_cancel_owes_what_came_due_by_then_and_jitter_puts_that_off(
    finished_s: float, is_owed: bool
) -> None:
    grids = Grids()
    row = task({"every": 1, "jitter": 0.5})
    grids.changed(None, row)
    done = {**row, "status": "cancelled", "finished_at": after(finished_s)}
    said = ended(grids, done, (1, "cancelled"))
    assert said == [f"{ID} was cancelled after its occurrence of {after(2)}"] * is_owed


@pytest.mark.parametrize("has_verdict", [True, False])
def test_a_cancel_says_what_became_of_an_occurrence_that_was_only_snoozed(
    has_verdict: bool,
) -> None:
    grids = Grids()
    first = task({"every": 1})
    running = {**first, "status": "running"}
    moved = {**running, "schedule": json.dumps({"every": 5}), "updated_at": after(2.5)}
    grids.changed(None, first)
    grids.changed(first, running)
    grids.changed(running, moved)
    done = {**moved, "status": "cancelled", "finished_at": after(3)}
    runs = [(2.0, "skipped"), *[(1.0, "cancelled")] * has_verdict]
    left_out = f"{ID} left out its occurrence of {after(1)}"
    said = ended(grids, done, *runs)
    assert said == [] if has_verdict else left_out in said
