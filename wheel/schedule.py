"""Periodic schedules: which occurrences follow from what a user writes (schedule_fields.py).

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
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

import msgspec

from duly.wheel.cron import LAST_S, Cron
from duly.wheel.durations import from_us, to_us
from duly.wheel.schedule_fields import Schedule, ScheduleError, checked, compiled

_CACHED = 8192
_SECOND_US = 1_000_000
_LAST_US = LAST_S * _SECOND_US


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
            self.cron = compiled(schedule.cron, schedule.timezone, schedule.gap, schedule.fold)
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
    schedule = checked(body)
    if Plan(schedule, now).first() is None:
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
    return Plan(_stored(text), created_at)


@lru_cache(_CACHED)
def _stored(text: str) -> Schedule:
    return checked(msgspec.json.decode(text))
