"""Periodic schedules: what a user writes, what is stored, and which occurrences follow from it.

`{"every": 3600}` or `{"cron": "0 3 * * *", "timezone": "Europe/Berlin"}`, both with `start_at`,
`end_at`, `max_runs` and `jitter`, cron with `dst` too, and what is watched of it: `expect_within` and
`pause_after`. An occurrence is known by its nominal time.
It depends on the schedule and on when the task was made, never on when a run took place, so every
node computes the same ones. Arithmetic is in whole microseconds.

    parse(body, now)  ->  Schedule, checked      what came with a request
    Schedule.text()   ->  canonical JSON         what is stored
    load(text, created_at)  ->  Plan             what is computed with
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from duly.wheel.cron import LAST_S, Cron, Fold, Gap
from duly.wheel.cron_fields import CronError, canonical
from duly.wheel.durations import from_us, parse_duration, parse_time, to_us
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
_LAST_US = LAST_S * _SECOND_US


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

    def plan(self, created_at: datetime) -> "Plan":
        """Bound to the time at which the task was made (or will be)."""
        return Plan(self, created_at)


class Plan:
    """The occurrences of a schedule.

    With `every` they are `start_at` plus whole periods; without a `start_at` the first is one
    period after the task was made. With cron they are the instants of cron.py. None is before
    `start_at` or before the task was made, none after `end_at` or the year 2999.
    """

    def __init__(self, schedule: Schedule, created_at: datetime) -> None:
        self.max_runs = schedule.max_runs
        """How many occurrences may run; None for any number. Counting is the caller's."""
        self.every: timedelta | None = None
        """The period of an `every` schedule, None for cron."""
        self._jitter_us = schedule.jitter_us
        self._period_us = schedule.every_us
        if schedule.every_us is not None:
            self.every = timedelta(microseconds=schedule.every_us)
        self.cron: Cron | None = None
        """The expression in its zone, None for an `every` schedule."""
        if schedule.cron is not None:
            assert schedule.timezone is not None, "cron always has a zone"
            self.cron = _compiled(schedule.cron, schedule.timezone, schedule.gap, schedule.fold)
        created_us = to_us(created_at)
        self._anchor_us = created_us if schedule.start_at is None else to_us(schedule.start_at)
        self._from_us = max(self._anchor_us, created_us)
        if self._period_us and schedule.start_at is None:
            self._from_us += self._period_us
        self._until_us = _LAST_US if schedule.end_at is None else to_us(schedule.end_at)

    def first(self) -> datetime | None:
        """The first occurrence, None if there is none."""
        return self._instant(self._at_or_after_us(self._from_us))

    def after(self, instant: datetime) -> datetime | None:
        """The first occurrence after `instant`; None if the schedule has ended by then."""
        return self._instant(self._at_or_after_us(to_us(instant) + 1))

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The occurrences in (after, until], the first `limit` of them, ascending."""
        found: list[datetime] = []
        until_us, at_us = to_us(until), to_us(after)
        while len(found) < limit:
            next_us = self._at_or_after_us(at_us + 1)
            if next_us is None or next_us > until_us:
                break
            found.append(from_us(next_us))
            at_us = next_us
        return found

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """The last occurrence in (after, until], however many there are."""
        floor_us = max(to_us(after), self._from_us - 1)
        top_us = min(to_us(until), self._until_us)
        if top_us <= floor_us:
            return None
        if self.cron is not None:
            found = self.cron.until(top_us // _SECOND_US, floor_us // _SECOND_US)
            return None if found is None else from_us(found * _SECOND_US)
        assert self._period_us is not None, "a schedule has a period or a cron expression"
        last_us = top_us - (top_us - self._anchor_us) % self._period_us
        return from_us(last_us) if last_us > floor_us else None

    def is_on_grid(self, instant: datetime) -> bool:
        """Whether `instant` is an occurrence, rather than a run that somebody asked for."""
        instant_us = to_us(instant)
        return self._at_or_after_us(instant_us) == instant_us

    def due(self, task_id: UUID, occurrence: datetime) -> datetime:
        """When `occurrence` is to run: 0 (inclusive) to `jitter` (exclusive) later.

        The same on every node, since it follows from the task and the occurrence alone.
        """
        if not self._jitter_us:
            return occurrence
        seed = task_id.bytes + to_us(occurrence).to_bytes(8, "big", signed=True)
        share = int.from_bytes(hashlib.sha256(seed).digest()[:8], "big")
        return occurrence + timedelta(microseconds=share * self._jitter_us >> 64)

    def _at_or_after_us(self, at_us: int) -> int | None:
        at_us = max(at_us, self._from_us)
        if self.cron is not None:
            second = self.cron.after(-(-at_us // _SECOND_US) - 1)
            next_us = None if second is None else second * _SECOND_US
        else:
            assert self._period_us is not None, "a schedule has a period or a cron expression"
            next_us = at_us + (self._anchor_us - at_us) % self._period_us
        return None if next_us is None or next_us > self._until_us else next_us

    @staticmethod
    def _instant(at_us: int | None) -> datetime | None:
        return None if at_us is None else from_us(at_us)


def parse(body: object, now: datetime) -> Schedule:
    """Check a schedule as decoded from JSON. `now` on the cluster's clock.

    Null means not given. Raises ScheduleError for a wrong field, and for a schedule that can never
    fire, at all or by `end_at`.
    """
    schedule = _checked(body)
    if schedule.plan(now).first() is None:
        if schedule.end_at is not None:
            raise ScheduleError("end_at", "the schedule does not fire by then")
        kind = "every" if schedule.cron is None else "cron"
        raise ScheduleError(
            kind, "it can never fire: no time is left until 2999, or each falls into a skipped gap"
        )
    return schedule


def load(text: str, created_at: datetime) -> Plan:
    """The plan of a stored schedule, for a task made at `created_at`.

    Raises ScheduleError if the text is not from `Schedule.text`, or names a zone that the zone
    data no longer hold.
    """
    return _stored(text).plan(created_at)


@lru_cache(_CACHED)
def _stored(text: str) -> Schedule:
    return _checked(msgspec.json.decode(text))


@lru_cache(_CACHED)
def _compiled(expression: str, timezone: str, gap: Gap | None, fold: Fold | None) -> Cron:
    try:
        place = zone(timezone)
    except ZoneError as error:
        raise ScheduleError("timezone", str(error)) from None
    try:
        return Cron(expression, place, gap, fold)
    except CronError as error:
        raise ScheduleError("cron", str(error)) from None


def _checked(body: object) -> Schedule:
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
    _compiled(expression, timezone, gap, fold)
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
