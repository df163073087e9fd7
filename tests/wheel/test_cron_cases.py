"""Faults that others' schedulers had, as cases by number."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from cron_rig import forwards, make, next_fires

from duly.wheel.cron_fields import CronError
from duly.wheel.durations import parse_duration, parse_time
from duly.wheel.schedule import load, parse
from duly.wheel.schedule_fields import ScheduleError
from duly.wheel.wheel import Wheel

NOW = parse_time("2026-11-29T00:00:00Z")


def _utc(text: str) -> datetime:
    return parse_time(text.removesuffix("Z") + ":00Z")


def test_c01_a_daily_job_keeps_its_hour_across_the_change_from_any_start() -> None:
    expected = ["2027-10-30T18:00Z", "2027-10-31T19:00Z", "2027-11-01T19:00Z", "2027-11-02T19:00Z"]
    start = _utc("2027-10-30T12:00Z")
    assert next_fires("0 20 * * *", "Europe/Paris", start, 4) == expected
    for hour in range(48):
        after = _utc("2027-10-30T00:00Z") + timedelta(hours=hour)
        left = [text for text in expected if _utc(text) > after]
        assert next_fires("0 20 * * *", "Europe/Paris", after, len(left)) == left


def test_c02_midnight_does_not_come_an_hour_early_when_24_goes_back_to_23() -> None:
    expected = ["2018-02-18T03:00Z", "2018-02-19T03:00Z", "2018-02-20T03:00Z"]
    starts = ["02:00", "02:05", *(f"{hour:02}:05" for hour in range(3, 24))]
    for start in starts:
        after = _utc(f"2018-02-17T{start}Z")
        midnights = [text for text in ["2018-02-17T02:00Z", *expected] if _utc(text) > after]
        assert next_fires("0 0 * * *", "America/Sao_Paulo", after, 3) == midnights[:3]
    night = _utc("2018-02-17T12:00Z"), _utc("2018-02-18T12:00Z")
    late = forwards(make("30 23 * * *", "America/Sao_Paulo"), *night)
    assert late == [_utc("2018-02-18T01:30Z")]


def test_c03_a_midnight_that_does_not_exist_is_the_first_instant_after_it() -> None:
    expected = ["2027-08-29T04:00Z", "2027-09-05T04:00Z", "2027-09-12T03:00Z", "2027-09-19T03:00Z"]
    start = _utc("2027-08-28T12:00Z")
    assert next_fires("0 0 * * 0", "America/Santiago", start, 4) == expected


def test_c04_lord_howe_changes_by_half_an_hour() -> None:
    assert next_fires("0 * * * *", "Australia/Lord_Howe", "2027-10-02T14:00:00Z", 4) == [
        "2027-10-02T14:30Z", "2027-10-02T16:00Z", "2027-10-02T17:00Z", "2027-10-02T18:00Z",
    ]  # fmt: skip
    assert next_fires("*/7 * * * *", "Australia/Lord_Howe", "2027-04-03T14:53:00Z", 7) == [
        f"2027-04-03T{at}Z" for at in ("14:56", "15:05", "15:12", "15:19", "15:26", "15:30", "15:37")
    ]  # fmt: skip


def test_c05_an_hourly_job_runs_each_real_hour() -> None:
    window = _utc("2027-11-07T06:30Z"), _utc("2027-11-07T11:30Z")
    assert forwards(make("0 * * * *", "America/Los_Angeles"), *window) == [
        _utc(f"2027-11-07T{hour:02}:00Z") for hour in range(7, 12)
    ]


@pytest.mark.parametrize("hours", ["7,9", "7-8"])
def test_c06_two_fixed_hours_keep_theirs(hours: str) -> None:
    second = int(hours[-1]) - 7
    expected = []
    for day, first in (("13", 15), ("14", 14), ("15", 14)):
        expected += [f"2027-03-{day}T{hour}:00Z" for hour in (first, first + second)]
    zone = "America/Los_Angeles"
    assert next_fires(f"0 {hours} * * *", zone, "2027-03-13T12:00:00Z", 6) == expected


@pytest.mark.parametrize("minute", [5, 10, 15, 20])
def test_c07_nightly_jobs_run_once_a_night(minute: int) -> None:
    cron = make(f"{minute} 2 * * *", "Europe/Berlin")
    autumn = _utc("2027-10-30T22:00Z"), _utc("2027-10-31T04:00Z")
    assert forwards(cron, *autumn) == [_utc(f"2027-10-31T00:{minute:02}Z")]
    spring = _utc("2027-03-27T22:00Z"), _utc("2027-03-28T04:00Z")
    assert forwards(cron, *spring) == [_utc("2027-03-28T01:00Z")]


def test_c08_a_stepped_star_beside_a_weekday_is_and() -> None:
    start = "2027-05-01T00:00:00Z"
    assert next_fires("0 16 */2 * SAT", "UTC", start, 5) == [
        f"2027-{day}T16:00Z" for day in ("05-01", "05-15", "05-29", "06-05", "06-19")
    ]


@pytest.mark.parametrize(
    "expression",
    ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 4,6 */2", "0 0 30,31 2 *", "0 0 29 2 *#5"],
)
def test_c09_what_can_never_fire_is_refused(expression: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse({"cron": expression}, NOW)
    assert caught.value.field == "cron"


def test_c09_either_rule_makes_the_look_alike_legal() -> None:
    mondays = ["2027-02-01", "2027-02-08", "2027-02-15", "2027-02-22", "2028-02-07", "2028-02-14"]
    assert next_fires("0 0 30 2 1", "UTC", "2027-01-01T00:00:00Z", 6) == [
        f"{day}T00:00Z" for day in mondays
    ]
    assert parse({"cron": "0 0 31 4,6 5#5"}, NOW).cron == "0 0 31 4,6 5#5"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 9-9 * * *", ["2027-01-01T03:30Z", "2027-01-02T03:30Z", "2027-01-03T03:30Z"]),
        ("5-5 * * * *", ["2027-01-01T00:35Z", "2027-01-01T01:35Z", "2027-01-01T02:35Z"]),
        ("0 0 15-15 * *", ["2027-01-14T18:30Z", "2027-02-14T18:30Z", "2027-03-14T18:30Z"]),
    ],
)
def test_c10_a_range_of_one_value_is_that_value(expression: str, expected: list[str]) -> None:
    assert next_fires(expression, "Asia/Kolkata", "2027-01-01T00:00:00Z", 3) == expected


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("America/Vancouver", "2026-11-29T16:00Z"), ("Africa/Casablanca", "2026-11-29T09:00Z")],
)
def test_c11_zones_are_those_of_the_package_and_not_of_the_system(zone: str, expected: str) -> None:
    assert next_fires("0 9 * * *", zone, NOW, 1) == [expected]


def test_c13_an_occurrence_does_not_depend_on_when_the_timer_wakes() -> None:
    midnight = parse_time("2027-01-02T00:00:00Z")
    made = parse_time("2027-01-01T12:00:00Z")
    plan = load(parse({"cron": "0 0 * * *"}, made).text(), made)
    assert plan.first() == midnight
    wheel: Wheel[str, None] = Wheel(int(made.timestamp() * 1e6))
    wheel.insert("job", int(midnight.timestamp() * 1e6), None)
    early = midnight - timedelta(milliseconds=20)
    assert wheel.advance(int(early.timestamp() * 1e6)) == []
    late = midnight + timedelta(milliseconds=4)
    assert len(wheel.advance(int(late.timestamp() * 1e6))) == 1
    assert plan.after(early) == midnight  # woken early, the next is still this one
    for woken in (midnight, late, midnight + timedelta(milliseconds=900)):
        assert plan.after(woken) == midnight + timedelta(days=1)
        assert plan.latest(made, woken) == midnight


def test_c16_long_periods_and_delays_do_not_overflow() -> None:
    for seconds in (2_147_483.647, 2_147_483.648, 60 * 86_400, 400 * 86_400):
        plan = load(parse({"every": seconds}, NOW).text(), NOW)
        assert plan.first() == NOW + timedelta(seconds=seconds)
        assert parse_duration(seconds) == seconds
    for value in (-1, float("nan"), float("inf"), 8000 * 365 * 86_400):
        with pytest.raises(ScheduleError):
            parse({"every": value}, NOW)
    with pytest.raises(ScheduleError):
        parse({"every": 60, "start_at": "9999-12-31T23:59:59Z"}, NOW)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("20 */4 * * *", ["08:20", "11:20", "15:20", "19:20"]),
        ("20 2-22/4 * * *", ["06:20", "13:20", "17:20", "21:20"]),
    ],
)
def test_c55_a_stepped_hour_that_is_skipped_does_not_run(
    expression: str, expected: list[str]
) -> None:
    instants = [f"2027-03-14T{at}Z" for at in expected]
    begin, zone = _utc("2027-03-14T06:00Z"), "America/Los_Angeles"
    for minute in range(601):
        after = begin + timedelta(minutes=minute)
        left = [text for text in instants if _utc(text) > after]
        assert next_fires(expression, zone, after, len(left)) == left


def test_c58_nth_and_last_weekdays_beside_a_day_of_month_are_either() -> None:
    def days(expression: str, count: int) -> list[str]:
        return [text[5:10] for text in next_fires(expression, "UTC", "2027-01-01T00:00:00Z", count)]

    assert days("0 0 15 * 1#1", 6) == ["01-04", "01-15", "02-01", "02-15", "03-01", "03-15"]
    assert days("0 0 1 * 5#1", 4) == ["02-01", "02-05", "03-01", "03-05"]
    assert days("0 0 13 * L5", 4) == ["01-13", "01-29", "02-13", "02-26"]


@pytest.mark.parametrize(
    "expression",
    [
        "TZ=0", "TZ=", "CRON_TZ=UTC", "TZ=Europe/Rome 0 2 * * *", "@every 5m", "R R * * *",
        "H H * * *", ",".join(str(n % 3) for n in range(300_000)), "9" * 5000, "9" * 290,
    ],
)  # fmt: skip
def test_c86_odd_input_is_refused_by_one_typed_error(expression: str) -> None:
    begun = time.process_time()
    with pytest.raises(ScheduleError) as caught:
        parse({"cron": expression}, NOW)
    assert time.process_time() - begun < 1  # not the seconds that parsing all of it would take
    assert caught.value.field == "cron"
    with pytest.raises(CronError):
        make(expression, "UTC")


def test_the_cases_are_not_bound_to_this_year() -> None:
    # The schedule of a year ahead is the same asked from today or from the evening before.
    far = datetime(2041, 3, 30, 12, tzinfo=UTC)
    assert next_fires("30 2 * * *", "Europe/Berlin", far, 1) == ["2041-03-31T01:00Z"]
