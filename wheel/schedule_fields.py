"""What a user writes of a periodic schedule, and what is stored of it: each field checked, its limits, its errors.

Which occurrences follow from it is in schedule.py.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from duly.wheel.cron import Cron, Fold, Gap
from duly.wheel.cron_fields import CronError, canonical
from duly.wheel.durations import parse_duration, parse_time
from duly.wheel.zones import ZoneError, zone

EVERY_MIN_S = 0.1
"""Shortest period of an `every` schedule."""

JITTER_MAX_S = 86_400
"""Longest jitter: a day. Of an `every` schedule also at most its period."""

RUNS_MAX = 1_000_000_000
"""Largest `max_runs`."""

EXPECT_MAX_S = 10 * 366 * 86_400
"""Longest `expect_within`: ten years. The shortest is a second."""

FAILURES_MAX = 1_000_000
"""Largest `pause_after`."""

WATCHED = frozenset({"expect_within", "pause_after"})
"""The fields that say nothing of when it fires."""

_KEYS = (
    "every", "cron", "timezone", "start_at", "end_at", "max_runs", "jitter", "dst", "expect_within",
    "pause_after",
)  # fmt: skip
_GAPS: tuple[Gap, ...] = ("shift", "skip")
_FOLDS: tuple[Fold, ...] = ("first", "second", "both")
_CACHED = 8192
_SECOND_US = 1_000_000


class ScheduleError(ValueError):
    """A schedule that is refused. `field` within it ("" for the whole), `message` for the user."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class Schedule(NamedTuple):
    """A checked schedule; exactly one of `every_us` and `cron` is given."""

    every_us: int | None
    cron: str | None
    timezone: str | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    jitter_us: int
    gap: Gap | None
    fold: Fold | None
    expect_us: int | None
    """Longest silence between occurrences that completed; None: any."""
    pause_after: int | None
    """Failed occurrences in a row after which the task is paused; None: never."""

    def text(self) -> str:
        """Canonical JSON: defaults left out but for `timezone`, times in UTC, durations in seconds."""
        dst = {"gap": self.gap, "fold": self.fold}
        fields: dict[str, Any] = {
            "every": self.every_us and self.every_us / _SECOND_US,
            "cron": self.cron,
            "timezone": self.timezone,
            "start_at": self.start_at,
            "end_at": self.end_at,
            "max_runs": self.max_runs,
            "jitter": self.jitter_us / _SECOND_US or None,
            "dst": {name: value for name, value in dst.items() if value} or None,
            "expect_within": self.expect_us and self.expect_us / _SECOND_US,
            "pause_after": self.pause_after,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode(given).decode()


def checked(body: object) -> Schedule:
    """Check a schedule as decoded from JSON; null means not given. Raises ScheduleError."""
    if not isinstance(body, Mapping):
        raise ScheduleError("", "must be an object with `every` or `cron`")
    for name in body:
        if name not in _KEYS:
            raise ScheduleError(str(name)[:60], "is not a known field")
    given = {name: value for name, value in body.items() if value is not None}
    if ("every" in given) == ("cron" in given):
        raise ScheduleError("", "must have either `every` or `cron`, and not both")
    start_at, end_at = _time(given, "start_at"), _time(given, "end_at")
    if start_at and end_at and end_at < start_at:
        raise ScheduleError("end_at", "is before `start_at`")
    every_us = _period_us(given) if "every" in given else None
    jitter_us = _duration_us(given, "jitter") if "jitter" in given else 0
    if jitter_us > JITTER_MAX_S * _SECOND_US:
        raise ScheduleError("jitter", f"must be at most {JITTER_MAX_S} s")
    if every_us is not None and jitter_us > every_us:
        raise ScheduleError("jitter", "must not be longer than `every`")
    cron, timezone, gap, fold = _cron(given)
    return Schedule(
        every_us, cron, timezone, start_at, end_at, _whole(given, "max_runs", RUNS_MAX), jitter_us,
        gap, fold, _expect_us(given), _whole(given, "pause_after", FAILURES_MAX),
    )  # fmt: skip


def _cron(given: dict[str, Any]) -> tuple[str | None, str | None, Gap | None, Fold | None]:
    """Expression, zone, and what `dst` says of gaps and overlaps."""
    if "cron" not in given:
        for name in ("timezone", "dst"):
            if name in given:
                raise ScheduleError(name, "goes with `cron` only")
        return None, None, None, None
    expression, timezone = given["cron"], given.get("timezone", "UTC")
    for name, value in (("cron", expression), ("timezone", timezone)):
        if not isinstance(value, str):
            raise ScheduleError(name, "must be a text")
    dst = given.get("dst", {})
    if not isinstance(dst, Mapping):
        raise ScheduleError("dst", "must be an object")
    for name in dst:
        if name not in ("gap", "fold"):
            raise ScheduleError(f"dst.{str(name)[:60]}", "is not a known field")
    gap, fold = dst.get("gap"), dst.get("fold")
    if gap is not None and gap not in _GAPS:
        raise ScheduleError("dst.gap", f"must be one of {', '.join(_GAPS)}")
    if fold is not None and fold not in _FOLDS:
        raise ScheduleError("dst.fold", f"must be one of {', '.join(_FOLDS)}")
    try:
        expression = canonical(expression)
    except CronError as error:
        raise ScheduleError("cron", str(error)) from None
    compiled(expression, timezone, gap, fold)
    return expression, timezone, gap, fold


def _period_us(given: dict[str, Any]) -> int:
    every_us = _duration_us(given, "every")
    if every_us < EVERY_MIN_S * _SECOND_US:
        raise ScheduleError("every", f"must be at least {EVERY_MIN_S} s")
    return every_us


def _duration_us(given: dict[str, Any], name: str) -> int:
    try:
        return round(parse_duration(given[name]) * _SECOND_US)
    except ValueError as error:
        raise ScheduleError(name, str(error)) from None


def _time(given: dict[str, Any], name: str) -> datetime | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ScheduleError(name, "must be a text with an RFC 3339 time")
    try:
        return parse_time(value)
    except ValueError as error:
        raise ScheduleError(name, str(error)) from None


def _expect_us(given: dict[str, Any]) -> int | None:
    if "expect_within" not in given:
        return None
    expect_us = _duration_us(given, "expect_within")
    if not _SECOND_US <= expect_us <= EXPECT_MAX_S * _SECOND_US:
        raise ScheduleError("expect_within", f"must be from 1 to {EXPECT_MAX_S:,} s")
    return expect_us


def _whole(given: dict[str, Any], name: str, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ScheduleError(name, f"must be a whole number from 1 to {most}")
    return value


@lru_cache(_CACHED)
def compiled(expression: str, timezone: str, gap: Gap | None, fold: Fold | None) -> Cron:
    """A cron expression in its zone. Raises ScheduleError."""
    try:
        place = zone(timezone)
    except ZoneError as error:
        raise ScheduleError("timezone", str(error)) from None
    try:
        return Cron(expression, place, gap, fold)
    except CronError as error:
        raise ScheduleError("cron", str(error)) from None
