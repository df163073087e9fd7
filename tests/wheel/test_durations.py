"""ISO 8601 durations and RFC 3339 times: what is accepted, what is refused and how it is said."""

from datetime import UTC, datetime, timedelta, timezone

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from duly.wheel.durations import DURATION_MAX_S, from_us, parse_duration, parse_time, to_us

HOSTILE = [
    "",
    " ",
    "\0",
    "P",
    "1" * 100_000,
    "P" * 100_000,
    "PT" + "1" * 100_000 + "S",
    "PT0." + "1" * 100_000 + "S",
    "PT٣M",  # a digit, but not an ASCII one
    "ＰＴ５Ｍ",  # full-width
    "PT5M\n",
    "\nPT5M",
    "PT5M\0",
    "PT5\u200bM",
    "\ud800",
    "é" * 1000,
]


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        (0, 0),
        (-0.0, 0),
        (300, 300),
        (0.25, 0.25),
        (DURATION_MAX_S, DURATION_MAX_S),
        ("PT5M", 300),
        ("PT0S", 0),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("P1W2DT3H4M5.5S", 788_645.5),
        ("PT0.5S", 0.5),
        ("PT0,5S", 0.5),
        ("PT1.5H", 5_400),
        ("P0.5D", 43_200),
        ("PT36H", 129_600),
        ("PT90S", 90),
        ("PT1H30S", 3_630),
        ("P1DT0.1S", 86_400.1),
        ("PT007M", 420),
    ],
)
def test_durations(value: float | str, expected_s: float) -> None:
    parsed_s = parse_duration(value)
    assert parsed_s == expected_s
    assert isinstance(parsed_s, float)
    assert str(parsed_s) != "-0.0"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("300", "expected seconds (a number) or an ISO 8601 duration such as PT5M"),
        ("5 minutes", "expected seconds"),
        ("pt5m", "expected seconds"),
        ("PT", "expected seconds"),
        ("P1DT", "expected seconds"),
        ("P5S", "expected seconds"),
        ("PT5D", "expected seconds"),
        ("PT5S3M", "expected seconds"),
        ("PT-5M", "expected seconds"),
        ("PT.5S", "expected seconds"),
        ("PT5.S", "expected seconds"),
        ("PT1e3S", "expected seconds"),
        ("P1Y", "years and months have no fixed length"),
        ("P3M", "years and months have no fixed length"),
        ("P1Y2M3DT4H", "years and months have no fixed length"),
        ("-PT5M", "a duration has no sign"),
        ("+PT5M", "a duration has no sign"),
        ("PT1.5H30M", "only the last part may have a fraction"),
        (-1, "must not be negative"),
        (-1e-9, "must not be negative"),
        (float("nan"), "must be finite"),
        (float("inf"), "must be finite"),
        (float("-inf"), "must be finite"),
        (DURATION_MAX_S + 1, "at most 100 years"),
        (1e308, "at most 100 years"),
        (10**400, "at most 100 years"),
        pytest.param(10**5_000, "at most 100 years", id="too long to print"),
        pytest.param(-(10**5_000), "must not be negative", id="too long to print, negative"),
        ("P36526D", "at most 100 years"),
        ("PT99999999999999999999999999999999S", "at most 100 years"),
        (True, "expected seconds"),
    ],
)
def test_durations_refused(value: float | str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(value)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", [None, [], {}, b"PT5M", 1j])
def test_other_types_are_refused_as_durations(value: object) -> None:
    with pytest.raises(ValueError, match="expected seconds"):
        parse_duration(value)  # type: ignore[arg-type] # what JSON may hold in its place


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused_shortly(text: str) -> None:
    for parse in (parse_duration, parse_time):
        with pytest.raises(ValueError) as caught:
            parse(text)
        message = str(caught.value)
        assert message.startswith("expected ")  # ours, not one of int() or Fraction()
        assert len(message) < 200
        assert message.isascii()
        assert message.isprintable()


@given(st.text() | st.floats() | st.integers())
def test_a_duration_is_parsed_or_refused_and_nothing_else(value: float | str) -> None:
    try:
        seconds = parse_duration(value)
    except ValueError:
        return
    assert 0 <= seconds <= DURATION_MAX_S


@given(
    st.integers(0, 5_000), st.integers(0, 400), st.integers(0, 99), st.integers(0, 99),
    st.integers(0, 99), st.integers(0, 999_999),
)  # fmt: skip
def test_a_duration_is_the_sum_of_its_parts(
    weeks: int, days: int, hours: int, minutes: int, seconds: int, micros: int
) -> None:
    text = f"P{weeks}W{days}DT{hours}H{minutes}M{seconds}.{micros:06}S"
    exact = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    assert parse_duration(text) == (exact + timedelta(microseconds=micros)).total_seconds()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-29T12:00:00Z", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("2026-11-29t12:00:00z", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("2026-11-29T12:00:00+01:00", datetime(2026, 11, 29, 11, tzinfo=UTC)),
        ("2026-11-29T12:00:00-05:30", datetime(2026, 11, 29, 17, 30, tzinfo=UTC)),
        ("2026-11-29T12:00:00-00:00", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("2026-11-29T12:00:00.5Z", datetime(2026, 11, 29, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-11-29T12:00:00.000001Z", datetime(2026, 11, 29, 12, 0, 0, 1, tzinfo=UTC)),
        ("2026-11-29T12:00:00.999999999Z", datetime(2026, 11, 29, 12, 0, 0, 999_999, tzinfo=UTC)),
        ("2028-02-29T23:59:59Z", datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", datetime(1970, 1, 1, tzinfo=UTC)),
        ("1969-12-31T23:00:00-01:00", datetime(1970, 1, 1, tzinfo=UTC)),
        ("2999-12-31T23:59:59.999999Z", datetime(2999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("3000-01-01T00:30:00+01:00", datetime(2999, 12, 31, 23, 30, tzinfo=UTC)),
    ],
)
def test_times(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected
    assert parse_time(text).tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2026-11-29T12:00:00", "expected an RFC 3339 time with offset"),
        ("2026-11-29 12:00:00Z", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00Z", "expected an RFC 3339 time with offset"),
        ("2026-11-29", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00:00+0100", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00:00+01", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00:00.Z", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00:00.1234567890Z", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00:00,5Z", "expected an RFC 3339 time with offset"),
        ("20261129T120000Z", "expected an RFC 3339 time with offset"),
        ("1796040000", "expected an RFC 3339 time with offset"),
        ("2026-1١-29T12:00:00Z", "expected an RFC 3339 time with offset"),
        ("2026-11-29T12:00:00Z\n", "expected an RFC 3339 time with offset"),
        ("2026-12-31T23:59:60Z", "leap seconds are not accepted"),
        ("2026-02-29T12:00:00Z", "day"),
        ("2026-13-01T12:00:00Z", "month must be in 1..12"),
        ("2026-11-29T24:00:00Z", "hour must be in 0..23"),
        ("2026-11-29T12:60:00Z", "minute must be in 0..59"),
        ("2026-11-29T12:00:61Z", "second must be in 0..59"),
        ("2026-11-29T12:00:00+24:00", "the offset must be within"),
        ("2026-11-29T12:00:00+01:60", "the offset must be within"),
        ("1969-12-31T23:59:59Z", "years 1970 to 2999"),
        ("1970-01-01T00:59:59+01:00", "years 1970 to 2999"),
        ("2999-12-31T23:30:00-01:00", "years 1970 to 2999"),
        ("3000-01-01T00:00:00Z", "years 1970 to 2999"),
        ("0000-01-01T00:00:00Z", "years 1970 to 2999"),
        ("0001-01-01T00:00:00+23:59", "years 1970 to 2999"),
        ("9999-12-31T23:59:59Z", "years 1970 to 2999"),
        ("9999-12-31T23:59:59-23:59", "years 1970 to 2999"),
    ],
)
def test_times_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_time(text)
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"got {text!a}")


@given(st.text())
def test_a_time_is_parsed_or_refused_and_nothing_else(text: str) -> None:
    try:
        instant = parse_time(text)
    except ValueError:
        return
    assert 1970 <= instant.year <= 2999


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2999, 12, 30)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_a_time_survives_being_written_with_any_offset(naive: datetime, offset_min: int) -> None:
    instant = naive.replace(tzinfo=timezone(timedelta(minutes=offset_min)))
    assert parse_time(instant.isoformat()) == instant


@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime.min.replace(tzinfo=UTC))
@example(datetime.max.replace(tzinfo=UTC))
def test_microseconds_round_trip(instant: datetime) -> None:
    assert from_us(to_us(instant)) == instant


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_instants_round_trip(instant_us: int) -> None:
    assert to_us(from_us(instant_us)) == instant_us


def test_conversions() -> None:
    assert to_us(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert to_us(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    assert from_us(1_790_000_000_000_001) == datetime(2026, 9, 21, 14, 13, 20, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="without a time zone"):
        to_us(datetime(2026, 1, 1))
    for beyond_us in (253_402_300_800_000_000, -62_135_596_800_000_001, 10**30, 10**5_000):
        with pytest.raises(ValueError, match="outside the years 1 to 9999"):
            from_us(beyond_us)
