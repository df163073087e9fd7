"""The syntax of cron expressions: what is accepted as what, and how the rest is refused."""

import hypothesis.strategies as st
import pytest
from cron_oracle import parse as judged
from hypothesis import example, given

from duly.wheel.cron_fields import EXPRESSION_MAX, CronError, Fields, parse

REFUSED = [
    ("", "expected 5 fields"),
    ("* * * *", "expected 5 fields"),
    ("* * * * * * *", "years"),
    ("60 * * * *", "not within 0 to 59"),
    ("* 24 * * *", "not within 0 to 23"),
    ("* * 0 * *", "not within 1 to 31"),
    ("* * 32 * *", "not within 1 to 31"),
    ("* * * 13 *", "not within 1 to 12"),
    ("* * * * 8", "not within 0 to 7"),
    ("*/0 * * * *", "step"),
    ("1/ * * * *", "step"),
    ("1/-1 * * * *", "step"),
    ("1-60 * * * *", "not within 0 to 59"),
    ("5-1 * * * *", "reversed"),
    ("* * * * FRI-MON", "reversed"),
    ("* * * NOV-FEB *", "reversed"),
    ("* * * * 5#6", "1 to 5"),
    ("* * * * 5#0", "1 to 5"),
    ("* * * * 5#", "1 to 5"),
    ("* * * * L", "needs a day"),
    ("* * * * 5LL", "stands alone"),
    ("* * L-3 * *", "stands alone"),
    ("* * LW * *", "nearest weekday"),
    ("* * 15W * *", "nearest weekday"),
    ("* * W15 * *", "nearest weekday"),
    ("R R * * *", "jitter"),
    ("H H * * *", "jitter"),
    ("H/15 * * * *", "jitter"),
    ("R(0-29) * * * *", "jitter"),
    ("a * * * *", "expected a number"),
    ("-1 * * * *", "expected a number"),
    ("1,,2 * * * *", "empty item"),
    ("* * * JANUARY *", "expected a number"),
    ("* * * MON *", "expected a number"),
    ("**/2 * * * *", "expected a number"),
    ("1.5 * * * *", "expected a number"),
    ("+1 * * * *", "expected a number"),
    ("1_0 * * * *", "expected a number"),
    ("\u0663 * * * *", "ASCII"),
    ("0 0\u00a0* * *", "ASCII"),
    ("0 0 * * \0", "expected a number"),
    ("@reboot", "is not one of @yearly"),
    ("@every 5m", "period as `every`"),
    ("TZ=0", "`timezone`"),
    ("TZ=", "`timezone`"),
    ("CRON_TZ=UTC", "`timezone`"),
    ("TZ=Europe/Rome 0 2 * * *", "`timezone`"),
    ("9" * 5000, "at most 300"),
    ("9" * 290 + " * * * *", "not within 0 to 59"),
    (",".join(["0"] * 300_000) + " * * * *", "at most 300"),
]


@pytest.mark.parametrize(("expression", "why"), REFUSED)
def test_refused(expression: str, why: str) -> None:
    with pytest.raises(CronError, match=why) as caught:
        parse(expression)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("  0\t0 * * *\n", "0 0 * * *"),
        ("0 9-9 * * mon-Mon", "0 9 * * 1"),
        ("5/20 * * * *", "5-59/20 * * * *"),
        ("59/15 * * * *", "59/1 * * * *"),
        ("0 0 ? * *", "0 0 * * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * 5L,L1,3#2", "0 0 * * L5,1L,WED#2"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 * * * * *", "* * * * *"),
        ("007 * * * *", "7 * * * *"),
        ("*/99 0 * * *", "0/60 0 * * *"),
    ],
)
def test_two_ways_to_write_the_same(expression: str, same: str) -> None:
    assert parse(expression) == parse(same)


def test_a_field_that_starts_with_a_star_is_not_restricted() -> None:
    assert parse("0 0 13 * FRI").either
    assert not parse("0 0 */2 * FRI").either
    assert not parse("0 0 13 * */2").either
    assert parse("0 0 1,*/2 * FRI").either


@pytest.mark.parametrize(
    ("expression", "interval"),
    [
        ("30 2 * * *", False),
        ("0-10,30 2,4 */2 * MON", False),
        ("0,30 2 5/3 * *", False),
        ("*/30 2 * * *", True),
        ("5/20 2 * * *", True),
        ("0-30/5 2 * * *", True),
        ("30 * * * *", True),
        ("? 2 * * *", True),
        ("*/5 0 2 * * *", True),
        ("0 0 2 * * *", False),
    ],
)
def test_what_makes_an_interval_job(expression: str, interval: bool) -> None:
    assert parse(expression).interval is interval


def _bits(values: set[int]) -> int:
    return sum(1 << value for value in values)


def _as_judged(expression: str) -> Fields:
    spec = judged(expression)
    return Fields(
        _bits(set(spec.seconds)), _bits(spec.minutes), _bits(spec.hours), _bits(spec.days),
        _bits(spec.months), _bits(spec.weekdays), spec.last_day, frozenset(spec.nth),
        _bits(spec.last), not (spec.days_free or spec.weekdays_free), spec.interval,
    )  # fmt: skip


def _items(low: int, high: int, *extra: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str)
    if extra:
        number = st.one_of(number, st.sampled_from([text for text in extra if text.isalpha()]))
    step = st.one_of(st.just(""), st.integers(1, high + 2).map("/{}".format))
    return st.one_of(
        st.just("*"), st.just("?"), number,
        st.builds(str.__add__, st.one_of(st.just("*"), st.just("?"), number), step),
        st.builds("{}-{}{}".format, number, number, step),
        st.sampled_from(extra or ("*",)),
    )  # fmt: skip


def _lists(low: int, high: int, *extra: str) -> st.SearchStrategy[str]:
    return st.lists(_items(low, high, *extra), min_size=1, max_size=4).map(",".join)


fields = st.tuples(
    _lists(0, 59),
    _lists(0, 23),
    _lists(1, 31, "L", "l"),
    _lists(1, 12, "JAN", "mar", "Dec"),
    _lists(0, 7, "sun", "MON", "Sat", "5L", "L5", "MONL", "LSUN", "7#5", "tue#1", "0L"),
)
expressions = st.one_of(fields, st.tuples(_lists(0, 59), fields).map(lambda p: (p[0], *p[1])))
noise = st.text(st.sampled_from("0123456789*/-,?LWRH#@ \tMONjan="), max_size=40)


@given(expressions.map(" ".join))
@example("0 0 * * 1-7/2")
@example("0 0 * * 7-7")
@example("0 0 * * 6-7")
@example("0 0 * * 0-7")
@example("0 0 * * 7/2")
@example("59/1 23/1 31/1 12/1 6/1")
@example("0-59 0-23 1-31 1-12 0-6")
def test_read_as_the_oracle_reads_it(expression: str) -> None:
    try:
        expected = _as_judged(expression)
    except ValueError:
        with pytest.raises(CronError):
            parse(expression)
    else:
        assert parse(expression) == expected


@given(st.one_of(noise, st.text(max_size=EXPRESSION_MAX + 10)))
def test_noise_is_refused_by_one_kind_of_error(text: str) -> None:
    try:
        fields = parse(text)
    except CronError:
        return
    assert fields == _as_judged(text)
