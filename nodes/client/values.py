"""Times and durations as a caller gives them, and as they are written."""

import math
from datetime import datetime, timedelta

When = datetime | str
"""An aware datetime, or RFC 3339 text with an offset."""

Duration = float | timedelta | str
"""Seconds, a timedelta, or an ISO 8601 duration such as `PT5M`."""


def moment(name: str, value: When) -> str:
    """Return a time as RFC 3339 text; raises ValueError for a datetime without an offset."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} needs a time zone: {value!r}")
        return value.isoformat()
    if isinstance(value, str):
        return value
    raise TypeError(f"{name} is a datetime or text, not {type(value).__name__}")


def duration(name: str, value: Duration) -> float | str:
    """Return seconds, or text as it is; raises TypeError or ValueError for anything else."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{name} is seconds, a timedelta or text, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is a finite number of seconds, not {value}")
    return value
