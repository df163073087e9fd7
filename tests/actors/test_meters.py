"""What a node notes, and how it is counted to minutes."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.actors.meters.meters import TYPES_MAX, Measured, Meters
from duly.actors.meters.minutes import KEPT, MINUTE_US, Figures, decode
from duly.actors.meters.names import OTHER
from duly.storage.slots import DueRow
from duly.wheel.durations import from_us

START = 1_790_000_040_000_000
assert START % MINUTE_US == 0


def row(due_us: int, ticked_us: int = 0) -> DueRow:
    return DueRow(UUID(int=1), 0, from_us(due_us), 0, 5, "q", ticked_us=ticked_us)


def attempt(task_type: str = "t", outcome: str = "completed", **more: Any) -> Measured:
    return Measured(task_type, outcome, 5_000, 3_000)._replace(**more)


def test_each_stage_is_measured_from_the_due_time() -> None:
    meters = Meters()
    meters.published([row(START, START + 10), row(START + 5, START + 10)], START + 20, START + 30)
    meters.ended([attempt()])
    total = meters.total(START)
    assert total.lags["ticked"].buckets == {10: 1, 5: 1}
    assert total.lags["claimed"].buckets == {20: 1, 15: 1}
    assert total.lags["published"].buckets == {30: 1, 25: 1}
    assert total.lags["started"].sum_us == 3_000
    assert total.counts == {"started": 2, "completed": 1}


def test_a_row_that_was_not_ticked_counts_to_the_other_stages() -> None:
    meters = Meters()
    meters.published([row(START)], START + 1, START + 2)
    assert meters.total(START).lags["ticked"].count == 0
    assert meters.total(START).lags["published"].count == 1


def test_attempts_count_by_outcome_and_type() -> None:
    meters = Meters()
    meters.ended([
        attempt(), attempt("u", "failed", retried=True), attempt("u", "lost", exhausted=True),
        attempt("u", "timed_out", duration_us=None, start_lag_us=None, skipped=3),
    ])  # fmt: skip
    assert meters.attempts["u", "failed"] == meters.attempts["u", "lost"] == 1
    assert (meters.retried["u"], meters.exhausted["u"], meters.exhausted["t"]) == (1, 1, 0)
    counts = meters.total(START).counts
    assert (counts["retried"], counts["exhausted"], counts["skipped"]) == (1, 1, 3)
    assert meters.total(START).durations["u"].count == 2


def test_types_beyond_the_first_so_many_share_one_name() -> None:
    meters = Meters()
    for number in range(TYPES_MAX + 10):
        meters.ended([attempt(f"t{number}")])
    meters.ended([attempt("t0")])
    assert len({name for name, _ in meters.attempts}) == TYPES_MAX + 1
    assert meters.attempts[OTHER, "completed"] == 10
    assert meters.attempts["t0", "completed"] == 2
    assert meters.total(START).durations[OTHER].count == 10


def test_what_was_noted_belongs_to_the_minute_that_runs() -> None:
    meters = Meters()
    minute = START // MINUTE_US
    meters.ended([attempt()])
    meters.fold(START)
    meters.unsaved.clear()
    meters.ended([attempt(), attempt()])
    meters.fold(START + MINUTE_US)
    assert meters.minutes[minute].counts["completed"] == 1
    assert meters.minutes[minute + 1].counts["completed"] == 2
    assert meters.unsaved == {minute + 1}
    assert meters.total(START + MINUTE_US).counts["completed"] == 3


def test_an_hour_is_kept_however_long_redis_is_away() -> None:
    meters = Meters()
    for minute in range(200):
        meters.fold(START + minute * MINUTE_US)
    assert len(meters.minutes) == KEPT
    assert meters.unsaved == meters.minutes.keys()


def test_the_depth_stays_until_it_is_counted_again() -> None:
    meters = Meters()
    meters.due(7, START)
    meters.fold(START + MINUTE_US)
    assert [one.due for one in meters.minutes.values()] == [7, 7]


def test_the_lag_of_late() -> None:
    meters = Meters()
    assert meters.lag_p99_s(START) is None
    meters.published([row(START)], START, START + 1_000_000)
    assert meters.lag_p99_s(START + 4 * MINUTE_US) == pytest.approx(1.0, rel=0.04)
    assert meters.lag_p99_s(START + 10 * MINUTE_US) is None


def test_figures_survive_the_way_to_redis_and_back() -> None:
    meters = Meters()
    meters.published([row(START, START + 10)], START + 20, START + 30)
    meters.ended([attempt(), attempt("ü", "failed")])
    meters.due(3, START)
    meters.fold(START)
    told = meters.minutes[START // MINUTE_US]
    read = decode(told.encode())
    assert read.counts == told.counts
    assert {s: h.buckets for s, h in read.lags.items()} == {
        s: h.buckets for s, h in told.lags.items()
    }
    assert read.durations.keys() == {"t", "ü"}
    assert read.due == 3
    both = Figures()
    both.merge(read)
    both.merge(told)
    assert (both.counts["started"], both.lags["ticked"].count, both.due) == (2, 2, 6)
    with pytest.raises(msgspec.DecodeError):
        decode(b"something else")
