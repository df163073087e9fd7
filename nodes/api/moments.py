"""Times and durations as people say them. Of what is far away a rough size says more than hours and minutes."""

from datetime import UTC, datetime
from itertools import pairwise

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_ROUGH = (
    (31_556_952.0, "years"), (2_629_746.0, "months"), (604_800.0, "weeks"), (86_400.0, "days"),
)  # fmt: skip
_ROUGH_FROM = 2  # so many of a unit


def moment(time: datetime, now: datetime) -> str:
    """Such as `2026-11-30 03:31:29 UTC (5 min ago)`."""
    ahead_s = (time - now).total_seconds()
    how_far = f"in {span(ahead_s)}" if ahead_s > 0 else f"{span(abs(ahead_s))} ago"
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({how_far})"


def span(seconds: float) -> str:
    """The two largest units of a duration of 0 s and more, such as `2 h 5 min`; from two days on about one, `13 years`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, name in _ROUGH:
        if seconds >= _ROUGH_FROM * size:
            return f"{seconds / size:.0f} {name}"
    for (size, name), (less, less_name) in pairwise(_UNITS):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            more = f" {rest // less:.0f} {less_name}" if rest >= less else ""
            return f"{whole:.0f} {name}{more}"
    return f"{seconds:.0f} s"


def count(number: int, what: str) -> str:
    """So many of something, such as `no tasks`, `1 task`."""
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
