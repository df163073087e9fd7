"""Durations and times as users write them, and exact conversion between datetime and microseconds.

Durations: a number of seconds, or ISO 8601 `P[nW][nD][T[nH][nM][nS]]` with at least one part and
a decimal fraction (`.` or `,`) in the last part only. A day is 86,400 s. Years and months are
refused, since how long they are depends on the date.

Times: RFC 3339 with a mandatory offset, `2026-11-29T12:00:00.5+01:00`: `T` and `Z` in either
case, a fraction of 1 to 9 digits, of which more than six are cut off (not rounded), `-00:00` read
as UTC. A leap second (`:60`) is refused: neither PostgreSQL nor Python has an instant for it, and
a neighbour of it is not the time that was asked for.

Every refusal is a ValueError whose message is fit for the user and quotes at most 60 characters.
"""

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

DURATION_MAX_S = 3_155_760_000
"""Longest duration: 100 years of 365.25 days."""

YEAR_MIN = 1970
YEAR_MAX = 2999
"""Times are accepted whose UTC year is within these."""

_SHOWN_MAX = 60
_LENGTH_MAX = 100

_SECONDS_PER_PART = (604_800, 86_400, 3_600, 60, 1)  # W D H M S, the groups of the pattern
_NUMBER = r"([0-9]+(?:[.,][0-9]+)?)"
_DURATION = re.compile(
    rf"P(?=[0-9T])(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_CALENDAR_DURATION = re.compile(r"P[0-9.,WD]*[YM]")
_DURATION_EXPECTED = "expected seconds (a number) or an ISO 8601 duration such as PT5M or P1DT2H"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def parse_duration(value: float | str) -> float:
    """Seconds, 0 to `DURATION_MAX_S`, from a number of seconds or an ISO 8601 duration.

    Raises ValueError for other text (a number in quotes too), years or months, a bool, a value
    that is negative, infinite or not a number, and more than 100 years.
    """
    if type(value) is float and 0.0 <= value <= DURATION_MAX_S:  # nearly always
        return value + 0.0  # the sum makes 0.0 of -0.0
    if isinstance(value, str):
        seconds: Fraction | float = _parse_iso_duration(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        message = f"{_DURATION_EXPECTED}, got {_shown(value)}"
        raise ValueError(message)  # noqa: TRY004 - callers report every refusal alike
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a duration must be finite, got {value}")
    else:
        seconds = value
    if seconds < 0:
        raise ValueError(f"a duration must not be negative, got {_shown(value)}")
    if seconds > DURATION_MAX_S:
        raise ValueError(f"a duration must be at most 100 years, got {_shown(value)}")
    return float(seconds)


def parse_time(text: str) -> datetime:
    """The instant in UTC of an RFC 3339 time.

    Raises ValueError for a missing offset and other formats, a date or time of day that does not
    exist, a leap second, and an instant before 1970 or after 2999.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(
            "expected an RFC 3339 time with offset such as 2026-11-29T12:00:00Z, "
            f"got {_shown(text)}"
        )
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, sign, offset_hour, offset_minute = match.groups()[6:]
    if second == 60:
        raise ValueError(f"leap seconds are not accepted, got {_shown(text)}")
    if not YEAR_MIN - 1 <= year <= YEAR_MAX + 1:  # one more each way, for the offset
        raise _out_of_range(text)
    offset = timedelta(0)
    if sign:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            raise ValueError(f"the offset must be within -23:59 and +23:59, got {_shown(text)}")
        offset = timedelta(hours=int(offset_hour), minutes=int(offset_minute))
    zone = timezone(-offset if sign == "-" else offset)
    microsecond = int((fraction or "")[:6].ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, zone)
    except ValueError as error:
        raise ValueError(f"{error}, got {_shown(text)}") from None
    instant = local.astimezone(UTC)
    if not YEAR_MIN <= instant.year <= YEAR_MAX:
        raise _out_of_range(text)
    return instant


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch, exact. Raises ValueError if `instant` has no time zone."""
    if instant.utcoffset() is None:
        raise ValueError(f"a datetime without a time zone is not an instant: {instant!r}")
    since = instant - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_us(instant_us: int) -> datetime:
    """The instant in UTC, exact. Raises ValueError outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        raise ValueError(f"outside the years 1 to 9999: {_shown(instant_us)} us") from None


def _parse_iso_duration(text: str) -> Fraction:
    """Exact seconds: the sum is rounded to a float only once, by the caller."""
    match = _DURATION.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        if text.startswith(("-P", "+P")):
            raise ValueError(f"a duration has no sign, got {_shown(text)}")
        if _CALENDAR_DURATION.match(text):
            raise ValueError(
                f"years and months have no fixed length: use weeks or days, got {_shown(text)}"
            )
        raise ValueError(f"{_DURATION_EXPECTED}, got {_shown(text)}")
    parts = [
        (number.replace(",", "."), seconds)
        for number, seconds in zip(match.groups(), _SECONDS_PER_PART, strict=True)
        if number is not None
    ]
    if any("." in number for number, _ in parts[:-1]):
        raise ValueError(f"only the last part may have a fraction, got {_shown(text)}")
    return sum((Fraction(number) * seconds for number, seconds in parts), Fraction(0))


def _out_of_range(text: str) -> ValueError:
    return ValueError(f"a time must be in the years {YEAR_MIN} to {YEAR_MAX}, got {_shown(text)}")


def _shown(value: object) -> str:
    """`value` for a message: escaped, and cut if a hostile sender made it long."""
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_MAX:
        return f"a number of more than {_SHOWN_MAX} digits"  # Python refuses to print a huge int
    shown = ascii(value[:_SHOWN_MAX]) if isinstance(value, str) else ascii(value)
    is_cut = len(shown) > _SHOWN_MAX or (isinstance(value, str) and len(value) > _SHOWN_MAX)
    return f"{shown[:_SHOWN_MAX]}..." if is_cut else shown
