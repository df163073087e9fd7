"""Schedules: what is accepted, what is stored, and the occurrences that follow."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duly.wheel.durations import from_us, parse_time, to_us
from duly.wheel.schedule import Plan, load, parse
from duly.wheel.schedule_fields import ScheduleError

NOW = parse_time("2027-01-01T12:00:00.5Z")
TASK = UUID("01932b5e-7a00-7000-8000-000000000001")
PINNED_US = 27_331_830
"""Worked out once: nodes of different versions must agree, so it may never change."""


def _plan(body: Mapping[str, object], created_at: datetime = NOW) -> Plan:
    return load(parse(body, created_at).text(), created_at)


def _times(*texts: str) -> list[datetime]:
    return [parse_time(text) for text in texts]


# What is accepted

REFUSED = [
    ([], "", "object"),
    ("0 3 * * *", "", "object"),
    ({}, "", "either"),
    ({"timezone": "UTC"}, "", "either"),
    ({"every": 60, "cron": "* * * * *"}, "", "not both"),
    ({"every": None, "cron": None}, "", "either"),
    ({"every": 60, "evry": 1}, "evry", "known"),
    ({"every": 0}, "every", "at least"),
    ({"every": 0.05}, "every", "at least"),
    ({"every": -60}, "every", "negative"),
    ({"every": True}, "every", "seconds"),
    ({"every": "60"}, "every", "ISO 8601"),
    ({"every": "P1M"}, "every", "months"),
    ({"every": 1e300}, "every", "100 years"),
    ({"every": float("nan")}, "every", "finite"),
    ({"every": [60]}, "every", "seconds"),
    ({"every": 60, "timezone": "UTC"}, "timezone", "cron"),
    ({"every": 60, "dst": {}}, "dst", "cron"),
    ({"every": 60, "jitter": 61}, "jitter", "longer than"),
    ({"every": 1e6, "jitter": 86_401}, "jitter", "at most"),
    ({"every": 60, "jitter": -1}, "jitter", "negative"),
    ({"every": 60, "start_at": 17}, "start_at", "text"),
    ({"every": 60, "start_at": "tomorrow"}, "start_at", "RFC 3339"),
    ({"every": 60, "end_at": "2027-01-01T12:00:00"}, "end_at", "offset"),
    ({"every": 60, "max_runs": 0}, "max_runs", "1 to"),
    ({"every": 60, "max_runs": True}, "max_runs", "1 to"),
    ({"every": 60, "max_runs": 1.0}, "max_runs", "1 to"),
    ({"every": 60, "max_runs": 10**10}, "max_runs", "1 to"),
    ({"every": 60, "expect_within": 0.9}, "expect_within", "from 1 to"),
    ({"every": 60, "expect_within": "PT1E"}, "expect_within", "duration"),
    ({"every": 60, "expect_within": 10**9}, "expect_within", "from 1 to"),
    ({"every": 60, "pause_after": 0}, "pause_after", "1 to"),
    ({"every": 60, "pause_after": 10**7}, "pause_after", "1 to"),
    ({"cron": 5}, "cron", "text"),
    ({"cron": "* * * *"}, "cron", "5 fields"),
    ({"cron": "0 0 31 2 *"}, "cron", "never fire"),
    ({"cron": "0," * 200_000 + "0 * * * *"}, "cron", "at most 300"),
    ({"cron": "*/15 2 * 3 7L", "timezone": "Europe/Berlin"}, "cron", "never fire"),
    ({"cron": "* * * * *", "timezone": 5}, "timezone", "text"),
    ({"cron": "* * * * *", "timezone": "Europe/Atlantis"}, "timezone", "not a time zone"),
    ({"cron": "* * * * *", "timezone": ""}, "timezone", "not a time zone"),
    ({"cron": "* * * * *", "dst": "skip"}, "dst", "object"),
    ({"cron": "* * * * *", "dst": {"gaps": "skip"}}, "dst.gaps", "known"),
    ({"cron": "* * * * *", "dst": {"gap": "both"}}, "dst.gap", "shift, skip"),
    ({"cron": "* * * * *", "dst": {"gap": ["skip"]}}, "dst.gap", "shift, skip"),
    ({"cron": "* * * * *", "dst": {"fold": "last"}}, "dst.fold", "first, second, both"),
    (
        {"every": 60, "start_at": "2027-02-01T00:00:00Z", "end_at": "2027-01-31T00:00:00Z"},
        "end_at", "before `start_at`",
    ),
    ({"every": 60, "end_at": "2027-01-01T12:00:59Z"}, "end_at", "does not fire by then"),
    ({"cron": "0 0 1 1 *", "end_at": "2027-12-31T00:00:00Z"}, "end_at", "does not fire by then"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field", "why"), REFUSED)
def test_refused(body: object, field: str, why: str) -> None:
    with pytest.raises(ScheduleError, match=why) as caught:
        parse(body, NOW)
    assert caught.value.field == field
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ({"every": 3600}, {"every": 3600.0}),
        ({"every": 60, "expect_within": "PT2M", "pause_after": 5},
         {"every": 60.0, "expect_within": 120.0, "pause_after": 5}),
        ({"every": "PT5M", "max_runs": 3, "jitter": "PT10S"},
         {"every": 300.0, "max_runs": 3, "jitter": 10.0}),
        ({"every": 0.2, "timezone": None, "dst": None, "cron": None, "jitter": 0}, {"every": 0.2}),
        ({"cron": " 0  3 * * * "}, {"cron": "0 3 * * *", "timezone": "UTC"}),
        ({"cron": "@Daily", "timezone": "Europe/Berlin", "dst": {"gap": "skip", "fold": None}},
         {"cron": "@Daily", "timezone": "Europe/Berlin", "dst": {"gap": "skip"}}),
        ({"cron": "0 3 * * *", "dst": {}, "start_at": "2027-06-01T00:00:00+02:00",
          "end_at": "2027-07-01T00:00:00.000001Z"},
         {"cron": "0 3 * * *", "timezone": "UTC", "start_at": "2027-05-31T22:00:00Z",
          "end_at": "2027-07-01T00:00:00.000001Z"}),
    ],
)  # fmt: skip
def test_stored_in_one_form(body: object, stored: Mapping[str, object]) -> None:
    text = parse(body, NOW).text()
    assert json.loads(text) == stored
    assert parse(json.loads(text), NOW).text() == text


def test_a_stored_schedule_is_loaded_whatever_the_order_of_its_fields() -> None:
    text = parse({"cron": "0 3 * * *", "timezone": "Asia/Tokyo", "max_runs": 2}, NOW).text()
    turned = json.dumps(dict(reversed(json.loads(text).items())), indent=1)
    plan = load(turned, NOW)
    assert plan.first() == load(text, NOW).first() == parse_time("2027-01-01T18:00:00Z")
    assert plan.max_runs == 2
    assert plan.every is None


def test_a_stored_zone_that_is_gone_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="not a time zone"):
        load('{"cron": "0 3 * * *", "timezone": "Europe/Atlantis"}', NOW)


# Occurrences


def test_every_is_a_timer_from_when_the_task_was_made() -> None:
    plan = _plan({"every": 60})
    assert plan.every == timedelta(seconds=60)
    assert plan.first() == NOW + timedelta(seconds=60)
    assert plan.after(NOW - timedelta(days=1)) == plan.first()
    assert plan.after(NOW + timedelta(seconds=60)) == NOW + timedelta(seconds=120)
    assert plan.after(NOW + timedelta(seconds=119.999999)) == NOW + timedelta(seconds=120)


def test_every_with_a_start_is_on_its_grid() -> None:
    future = _plan({"every": 3600, "start_at": "2027-02-01T00:00:00Z"})
    assert future.first() == parse_time("2027-02-01T00:00:00Z")
    past = _plan({"every": 3600, "start_at": "2026-01-01T00:30:00Z"})
    assert past.first() == parse_time("2027-01-01T12:30:00Z")
    assert not past.is_on_grid(parse_time("2027-01-01T11:30:00Z"))  # before the task was made
    assert past.is_on_grid(parse_time("2027-01-01T13:30:00Z"))
    assert not past.is_on_grid(parse_time("2027-01-01T13:30:00.000001Z"))
    exact = _plan({"every": 3600, "start_at": "2027-01-01T12:00:00.5Z"})
    assert exact.first() == NOW


def test_cron_begins_when_the_task_was_made_or_later() -> None:
    noon = parse_time("2027-01-01T12:00:00Z")
    assert _plan({"cron": "0 12 * * *"}, noon).first() == noon
    late = _plan({"cron": "0 12 * * *"}, noon + timedelta(microseconds=1))
    assert late.first() == noon + timedelta(days=1)
    assert late.after(noon - timedelta(days=9)) == noon + timedelta(days=1)
    start = _plan({"cron": "0 12 * * *", "start_at": "2027-03-01T12:00:00Z"}, noon)
    assert start.first() == parse_time("2027-03-01T12:00:00Z")


def test_the_end_is_part_of_the_schedule() -> None:
    for body in ({"every": 3600, "start_at": "2027-02-01T00:00:00Z"}, {"cron": "0 * * * *"}):
        plan = _plan({**body, "end_at": "2027-02-01T02:00:00Z"})
        begin = parse_time("2027-01-31T23:59:00Z")
        expected = _times("2027-02-01T00:00:00Z", "2027-02-01T01:00:00Z", "2027-02-01T02:00:00Z")
        assert plan.between(begin, begin + timedelta(days=1), 100) == expected
        assert plan.after(expected[-1]) is None
        assert plan.latest(begin, begin + timedelta(days=1)) == expected[-1]


def test_between_takes_no_more_than_asked() -> None:
    plan = _plan({"cron": "* * * * *"})
    until = NOW + timedelta(days=90)
    assert plan.between(NOW, until, 2) == _times("2027-01-01T12:01:00Z", "2027-01-01T12:02:00Z")
    assert plan.between(NOW, NOW, 2) == []
    assert plan.latest(NOW, until) == parse_time("2027-04-01T12:00:00Z")
    assert plan.latest(until, NOW) is None
    assert plan.latest(NOW, NOW + timedelta(seconds=59)) is None
    assert plan.latest(NOW - timedelta(days=9), NOW) is None  # before the task was made


anchors = st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))
spans = st.timedeltas(timedelta(0), timedelta(days=2))
bodies = st.one_of(
    st.fixed_dictionaries(
        {"every": st.integers(100_000, 10**11).map(lambda us: us / 1_000_000)},
        optional={"start_at": anchors.map(datetime.isoformat)},
    ),
    st.fixed_dictionaries(
        {
            "cron": st.sampled_from(["*/7 * * * *", "30 2 * * *", "5 1-3 * * *", "0 0 */2 * MON"]),
            "timezone": st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
        },
        optional={
            "dst": st.fixed_dictionaries(
                {
                    "gap": st.sampled_from(["shift", "skip"]),
                    "fold": st.sampled_from(["first", "second", "both"]),
                }
            ),
            "start_at": anchors.map(datetime.isoformat),
        },
    ),
)


@given(bodies, anchors, anchors, spans)
def test_all_ways_to_ask_agree(
    body: Mapping[str, object], created_at: datetime, begin: datetime, span: timedelta
) -> None:
    plan = _plan(body, created_at)
    end = begin + span
    found = plan.between(begin, end, 50)
    assert found == sorted(set(found))
    assert all(begin < one <= end for one in found)
    at, walked = begin, list[datetime]()
    while len(walked) < 50 and (one := plan.after(at)) is not None and one <= end:
        walked.append(one)
        at = one
    assert walked == found
    assert all(plan.is_on_grid(one) for one in found)
    for before, one in zip([begin, *found], found, strict=False):
        assert plan.latest(begin, one) == one
        assert plan.latest(before, one - timedelta(microseconds=1)) is None
    if not found:
        assert plan.latest(begin, end) is None


# Jitter


@given(st.uuids(), anchors, st.integers(1, 86_400_000_000))
def test_jitter_is_within_its_bounds_and_the_same_everywhere(
    task_id: UUID, occurrence: datetime, jitter_us: int
) -> None:
    body = {"cron": "* * * * *", "jitter": jitter_us / 1_000_000}
    plan, other = _plan(body), _plan(body, NOW + timedelta(days=1))
    due = plan.due(task_id, occurrence)
    assert 0 <= to_us(due) - to_us(occurrence) < jitter_us
    assert due == other.due(task_id, occurrence)


def test_jitter_is_pinned_and_spread() -> None:
    plan = _plan({"cron": "0 * * * *", "jitter": 60})
    assert plan.due(TASK, NOW) == from_us(to_us(NOW) + PINNED_US)
    hours = [NOW + timedelta(hours=n) for n in range(600)]
    shares = [(plan.due(TASK, hour) - hour).total_seconds() / 60 for hour in hours]
    assert 0.4 < sum(shares) / len(shares) < 0.6
    assert len(set(shares)) > 590
    assert _plan({"cron": "0 * * * *"}).due(TASK, NOW) == NOW
