"""Cron across clock changes and calendars, against instants worked out by hand from the zones."""

from datetime import datetime, timedelta

import cron_oracle
import pytest
from cron_rig import backwards, forwards, make, next_fires

from duly.wheel.cron import LAST_S
from duly.wheel.durations import parse_time

HAND = [
    # Berlin 2026-03-29: 02:00 CET becomes 03:00 CEST at 01:00Z.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00", "2026-03-31T00:00",
     ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
    ("0,15,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T12:00",
     ["2026-03-29T01:00"]),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T12:00",
     ["2026-03-29T01:00"]),
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T02:00",
     ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30", "2026-03-29T02:00"]),
    ("15 */2 * * *", "Europe/Berlin", "2026-03-28T22:00", "2026-03-29T04:00",
     ["2026-03-28T23:15", "2026-03-29T02:15"]),
    # Berlin 2026-10-25: 03:00 CEST becomes 02:00 CET at 01:00Z.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-26T12:00",
     ["2026-10-25T00:30", "2026-10-26T01:30"]),
    ("30 * * * *", "Europe/Berlin", "2026-10-24T23:00", "2026-10-25T03:00",
     ["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]),
    # New York 2026-03-08 07:00Z forward, 2026-11-01 06:00Z back.
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00", "2026-11-02T12:00",
     ["2026-11-01T05:30", "2026-11-02T06:30"]),
    ("0 6 * * *", "America/New_York", "2026-03-07T12:00", "2026-03-09T12:00",
     ["2026-03-08T10:00", "2026-03-09T10:00"]),
    # Lord Howe shifts by 30 minutes. 2026-04-05 02:00+11 becomes 01:30+10:30 at 15:00Z on the
    # 4th; 2026-10-04 02:00+10:30 becomes 02:30+11 at 15:30Z on the 3rd.
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00", "2026-04-06T00:00",
     ["2026-04-04T14:45", "2026-04-05T15:15"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T12:00", "2026-10-04T12:00",
     ["2026-10-02T15:45", "2026-10-03T15:30"]),
    ("*/15 * * * *", "Australia/Lord_Howe", "2026-04-04T14:20", "2026-04-04T15:40",
     ["2026-04-04T14:30", "2026-04-04T14:45", "2026-04-04T15:00",
      "2026-04-04T15:15", "2026-04-04T15:30"]),
    # St John's 2026-03-08 02:00 NST (-03:30) becomes 03:00 NDT at 05:30Z.
    ("30 2 * * *", "America/St_Johns", "2026-03-07T12:00", "2026-03-09T12:00",
     ["2026-03-08T05:30", "2026-03-09T05:00"]),
    # Sao Paulo has a gap at midnight on 2018-11-04, at 03:00Z.
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T04:00", "2018-11-05T12:00",
     ["2018-11-04T03:00", "2018-11-05T02:00"]),
    # Apia skipped the whole of 2011-12-30: the 29th (-10) ended as the 31st (+14) at 10:00Z.
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00", "2012-01-01T12:00",
     ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00", "2011-12-31T22:00"]),
    ("0 * * * *", "Pacific/Apia", "2011-12-30T08:00", "2011-12-30T12:00",
     ["2011-12-30T09:00", "2011-12-30T10:00", "2011-12-30T11:00", "2011-12-30T12:00"]),
    # Kolkata is +05:30 all year.
    ("0 9 * * MON-FRI", "Asia/Kolkata", "2026-07-03T00:00", "2026-07-07T00:00",
     ["2026-07-03T03:30", "2026-07-06T03:30"]),
    # The calendar. 2026-02-28 is a Saturday.
    ("0 0 L * *", "UTC", "2026-01-15T00:00", "2026-04-01T00:00",
     ["2026-01-31T00:00", "2026-02-28T00:00", "2026-03-31T00:00"]),
    ("0 0 * * 5L", "UTC", "2026-01-01T00:00", "2026-03-31T00:00",
     ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00"]),
    ("0 0 * * L5", "UTC", "2026-01-01T00:00", "2026-03-31T00:00",
     ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00"]),
    ("0 0 * * TUE#2", "UTC", "2026-01-01T00:00", "2026-03-31T00:00",
     ["2026-01-13T00:00", "2026-02-10T00:00", "2026-03-10T00:00"]),
    ("0 0 13 * FRI", "UTC", "2026-02-01T00:00", "2026-02-28T00:00",
     ["2026-02-06T00:00", "2026-02-13T00:00", "2026-02-20T00:00", "2026-02-27T00:00"]),
    ("0 0 */2 * MON", "UTC", "2026-06-01T00:00", "2026-06-30T12:00",
     ["2026-06-15T00:00", "2026-06-29T00:00"]),
    ("0 0 */10 * *", "UTC", "2021-02-12T00:00", "2021-03-12T00:00",
     ["2021-02-21T00:00", "2021-03-01T00:00", "2021-03-11T00:00"]),
    ("0 9 29 2 *", "UTC", "2027-12-01T00:00", "2028-06-01T00:00", ["2028-02-29T09:00"]),
    # Seconds come first.
    ("*/20 0 12 * * *", "UTC", "2026-01-01T11:59:50", "2026-01-01T12:01:00",
     ["2026-01-01T12:00:00", "2026-01-01T12:00:20", "2026-01-01T12:00:40"]),
]  # fmt: skip


def _utc(text: str) -> datetime:
    return parse_time(text + ("Z" if text.count(":") == 2 else ":00Z"))


@pytest.mark.parametrize(("expression", "zone", "start", "end", "expected"), HAND)
def test_instants_worked_out_by_hand(
    expression: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    window = _utc(start), _utc(end)
    instants = [_utc(text) for text in expected]
    cron = make(expression, zone)
    assert forwards(cron, *window) == instants
    assert backwards(cron, *window) == instants
    assert cron_oracle.fires(expression, cron_oracle.Window(zone, *window)) == instants


def test_one_range_of_one_value_is_that_value() -> None:
    assert next_fires("0 0 15-15 * MON-MON", "UTC", "2027-02-01T00:00:00Z", 3) == [
        "2027-02-08T00:00Z", "2027-02-15T00:00Z", "2027-02-22T00:00Z",
    ]  # fmt: skip


def test_dst_may_be_told_otherwise() -> None:
    spring = _utc("2026-03-28T12:00"), _utc("2026-03-29T12:00")
    autumn = _utc("2026-10-24T12:00"), _utc("2026-10-25T12:00")
    nightly = "30 2 * * *"
    skipping = make(nightly, "Europe/Berlin", gap="skip")
    assert forwards(skipping, *spring) == backwards(skipping, *spring) == []
    second = make(nightly, "Europe/Berlin", fold="second")
    assert forwards(second, *autumn) == backwards(second, *autumn) == [_utc("2026-10-25T01:30")]
    both = make(nightly, "Europe/Berlin", fold="both")
    assert forwards(both, *autumn) == [_utc("2026-10-25T00:30"), _utc("2026-10-25T01:30")]
    hourly = make("30 * * * *", "Europe/Berlin", gap="shift", fold="first")
    begin = _utc("2026-10-25T00:00")
    assert forwards(hourly, begin, begin + timedelta(hours=3)) == [
        _utc("2026-10-25T00:30"), _utc("2026-10-25T02:30"),
    ]  # fmt: skip
    begin = _utc("2026-03-29T00:00")
    assert forwards(hourly, begin, begin + timedelta(hours=2)) == [
        _utc("2026-03-29T00:30"), _utc("2026-03-29T01:00"), _utc("2026-03-29T01:30"),
    ]  # fmt: skip


def test_a_search_does_not_jump_over_an_overlap_that_lies_near() -> None:
    sundays = make("30/40 2 * * SUN", "Europe/Berlin")  # an interval job: both times in the overlap
    first, second = (int(_utc(f"2026-10-25T0{hour}:30").timestamp()) for hour in (0, 1))
    assert sundays.after(first) == sundays.after(second - 2400) == second
    assert sundays.until(second - 1, 0) == sundays.until(second - 1200, 0) == first
    assert sundays.after(second) == int(_utc("2026-11-01T01:30").timestamp())
    assert sundays.until(first - 1, 0) == int(_utc("2026-10-18T00:30").timestamp())


def test_what_always_falls_into_a_gap_ends_the_search() -> None:
    cron = make("*/15 2 * 3 7L", "Europe/Berlin")  # summer time begins on the last Sunday of March
    assert cron.after(int(_utc("2026-01-01T00:00").timestamp())) is None
    assert cron.until(LAST_S, 0) is None
    assert make("*/15 3 * 3 7L", "Europe/Berlin").after(0) is not None


def test_nothing_fires_after_the_year_2999() -> None:
    cron = make("0 0 1 1 *", "Pacific/Kiritimati")  # 14 hours ahead of UTC
    last = cron.until(LAST_S, 0)
    assert last == int(_utc("2999-12-31T10:00").timestamp())
    assert cron.after(last) is None
    assert make("0 0 1 1 *", "Etc/GMT+12").after(last) is None


def test_far_and_rare_dates_are_found() -> None:
    # Of the leap days of the 21st century, only those of 2032, 2060 and 2088 are Sundays.
    expected = ["2032-02-29T00:00Z", "2060-02-29T00:00Z", "2088-02-29T00:00Z", "2128-02-29T00:00Z"]
    assert next_fires("0 0 29 2 */7", "Europe/Berlin", "2027-01-01T00:00:00Z", 4) == [
        (_utc(text[:-1]) - timedelta(hours=1)).isoformat()[:16] + "Z" for text in expected
    ]
