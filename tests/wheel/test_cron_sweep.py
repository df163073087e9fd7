"""Cron against the oracle: around every clock change, and for whatever Hypothesis thinks of.

All expressions in all zones take minutes: `scripts/check_cron`. Here each clock change of 2018 to
2030 is tried with two of the expressions, taking turns, so that each of them comes up.
"""

from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from cron_oracle import Window, fires
from cron_rig import make
from cron_sweep import EXPRESSIONS, ZONES, disagreements, windows
from hypothesis import given, settings

from duly.wheel.cron import Fold, Gap
from duly.wheel.cron_fields import CronError

_GAPS: tuple[Gap | None, ...] = (None, "shift", "skip")
_FOLDS: tuple[Fold | None, ...] = (None, "first", "second", "both")


@pytest.mark.parametrize("zone", ZONES)
def test_around_every_clock_change(zone: str) -> None:
    found: list[str] = []
    turn = ZONES.index(zone) * 7
    for window in windows(zone, 1):
        for gap, fold in ((None, None), (_GAPS[turn % 3], _FOLDS[turn // 3 % 4])):
            turn += 1
            expression = EXPRESSIONS[turn * 41 % len(EXPRESSIONS)]
            found += disagreements(expression, zone, window, gap, fold)
    assert found == []


def test_the_expressions_are_many_and_different() -> None:
    assert len(set(EXPRESSIONS)) >= 300


minutes = st.sampled_from(["0", "30", "*", "*/20", "5/17", "10-40/15", "0,45", "59", "0-3", "7"])
hours = st.sampled_from(["*", "*/3", "0", "1", "2", "3", "1-3", "22-23", "0-4/2", "2,23", "1/7"])
days = st.sampled_from(["*", "L", "1-7", "*/2", "13", "31", "25-31", "1,L"])
months = st.sampled_from(["*", "3,10", "MAR-APR", "*/5", "9-11"])
weekdays = st.sampled_from(["*", "0", "SUN", "6-7", "SUNL", "L6", "7#2", "1-5", "*/3", "MON,5#1"])
fields = st.tuples(minutes, hours, days, months, weekdays)
starts = st.datetimes(datetime(2000, 1, 1), datetime(2037, 12, 1), timezones=st.just(UTC))


@settings(max_examples=40)
@given(
    fields, st.sampled_from(["", "0 ", "*/25 ", "10,50 "]), st.sampled_from(ZONES), starts,
    st.integers(1, 20), st.sampled_from(_GAPS), st.sampled_from(_FOLDS),
)  # fmt: skip
def test_any_expression_zone_and_window(
    fields: tuple[str, ...],
    seconds: str,
    zone: str,
    start: datetime,
    length_days: int,
    gap: Gap | None,
    fold: Fold | None,
) -> None:
    start = start.replace(second=0, microsecond=0)
    end = start + timedelta(days=length_days)
    window = Window(zone, start, end)
    expression = seconds + " ".join(fields)
    try:
        make(expression, zone)
    except CronError:  # no such date
        assert fires(expression, window) == []
        return
    assert list(disagreements(expression, zone, window, gap, fold)) == []
