"""Collects what is wrong with a body, field by field, beyond what its types can tell."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.nodes.api import json_guard
from duly.nodes.api.problems import FieldError, Problem, invalid
from duly.wheel import schedule as schedules
from duly.wheel.durations import from_us, parse_duration, parse_time
from duly.wheel.schedule_fields import Schedule, ScheduleError

TIMEOUT_MAX_S = 30 * 86_400.0
"""Longest timeout of an attempt."""

_encoder = msgspec.json.Encoder()


class Checker:
    """Collects what is wrong with one body."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.errors: list[FieldError] = []

    def wrong(self, field: str, message: str) -> None:
        """Note that a field is wrong."""
        self.errors.append(self.error(field, message))

    def error(self, field: str, message: str) -> FieldError:
        """What is wrong with a field, by its whole path."""
        path = self._prefix.rstrip(".") if field == "body" else self._prefix + field
        return FieldError(path or field, message)

    def within(self, field: str) -> "Checker":
        """For what is inside of a field; notes it in the same place."""
        inner = Checker(f"{self._prefix}{field}.")
        inner.errors = self.errors
        return inner

    def duration(self, field: str, value: float | str) -> float | None:
        """Seconds, None if the value is wrong."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.wrong(field, str(error))
            return None

    def due(self, run_at: str | None, delay: float | str | None, now: datetime) -> datetime | None:
        """When to run, None if the fields do not say or are wrong."""
        if run_at is not None and delay is not None:
            self.wrong("delay", "give run_at or delay, not both")
        elif run_at is not None:
            try:
                return parse_time(run_at)
            except ValueError as error:
                self.wrong("run_at", str(error))
        elif delay is not None:
            seconds = self.duration("delay", delay)
            return None if seconds is None else now + timedelta(seconds=seconds)
        return None

    def timeout(self, value: float | str) -> float:
        """Seconds of one attempt."""
        if type(value) is float and 0.0 < value <= TIMEOUT_MAX_S:  # nearly always
            return value
        seconds = self.duration("timeout", value)
        if seconds is not None and not 0 < seconds <= TIMEOUT_MAX_S:
            self.wrong("timeout", f"must be more than 0 and at most {TIMEOUT_MAX_S:,.0f} s")
        return seconds or TIMEOUT_MAX_S

    def text(self, field: str, value: str) -> None:
        """Text that PostgreSQL can hold."""
        if "\0" in value:
            self.wrong(field, "holds a NUL character, which PostgreSQL cannot store")

    def key(self, field: str, value: str | None) -> str | None:
        """A key that PostgreSQL can hold, or none."""
        if value is not None:
            self.text(field, value)
        return value

    def concurrency_limit(self, key: str | None, limit: int | None) -> int | None:
        """How many tasks with this key may run at once; none without a key."""
        if key is not None:
            return limit or 1
        if limit is not None:
            self.wrong("concurrency_limit", "goes with a concurrency_key")
        return None

    def tags(self, tags: Mapping[str, str]) -> str:
        """Tags as JSON text."""
        for name, value in tags.items():
            self.text("tags", name)
            self.text(f"tags.{name}", value)
        return _encoder.encode(tags).decode() if tags else "{}"

    def payload(self, raw: bytes, limit_bytes: int, field: str = "payload") -> str:
        """A JSON value as text; raises `Problem` 413 at once if it is too large."""
        if len(raw) > limit_bytes:
            error = FieldError(self._prefix + field, f"is larger than {limit_bytes} bytes")
            raise Problem(413, "Too large", f"{error.field}: {error.message}", errors=[error])
        try:
            json_guard.check(raw)
        except json_guard.UnfitJsonError as error:
            joint = "." if error.path and not error.path.startswith("[") else ""
            self.wrong(f"{field}{joint}{error.path}", str(error))
        return raw.decode()

    def schedule(self, body: Mapping[str, Any], now_us: int) -> Schedule | None:
        """A schedule that will fire, None if it is wrong."""
        try:
            return schedules.parse(body, from_us(now_us))
        except ScheduleError as error:
            self.wrong(f"schedule.{error.field}" if error.field else "schedule", error.message)
            return None

    def raise_if_wrong(self) -> None:
        """Raise `Problem` 422 with everything that was noted."""
        if self.errors:
            raise invalid(*self.errors)
