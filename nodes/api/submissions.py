"""A checked body becomes a task, ready to insert."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from duly.actors import courses
from duly.nodes.api import json_guard
from duly.nodes.api.problems import FieldError, Problem, invalid
from duly.nodes.api.wire import KEY_MAX, TaskSubmission
from duly.storage.ids import uuid7
from duly.storage.submitting import NewTask
from duly.wheel import occurrences
from duly.wheel import schedule as schedules
from duly.wheel.backoff import Backoff
from duly.wheel.durations import from_us, parse_duration, parse_time
from duly.wheel.schedule import Schedule, ScheduleError

TIMEOUT_MAX_S = 30 * 86_400.0
"""Longest timeout of an attempt."""

_encoder = msgspec.json.Encoder()

# Wide enough to drop no digit of any number that may be stored.
_EXACT = Context(prec=4 * json_guard.DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN)


class Checker:
    """Collects what is wrong with one body."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.errors: list[FieldError] = []

    def wrong(self, field: str, message: str) -> None:
        """Note that a field is wrong."""
        path = self._prefix.rstrip(".") if field == "body" else self._prefix + field
        self.errors.append(FieldError(path or field, message))

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


def backoff_text(backoff: Backoff) -> str:
    """A backoff as JSON text."""
    return _encoder.encode(backoff).decode()


def draw(body: TaskSubmission, checker: Checker, now_us: int) -> UUID:
    """An id for a task whose client has chosen none."""
    return body.id or uuid7(now_us // 1000)


Draw = Callable[[TaskSubmission, Checker, int], UUID]
"""Makes the id of a task, or takes the client's; may note what is wrong with it."""


def new_task(
    body: TaskSubmission,
    raw: bytes | msgspec.Raw,
    checker: Checker,
    now_us: int,
    payload_limit: int,
    draw: Draw = draw,
) -> NewTask:
    """Check what the types could not; the caller looks at the checker's errors."""
    now = from_us(now_us)
    due = checker.due(body.run_at, body.delay, now)
    grace = body.misfire_grace
    key = body.idempotency_key
    if key is not None:
        checker.text("idempotency_key", key)
    limit = checker.concurrency_limit(body.concurrency_key, body.concurrency_limit)
    new = NewTask(
        id=draw(body, checker, now_us),
        type=body.type,
        queue=body.queue,
        payload=checker.payload(bytes(body.payload), payload_limit),
        due=due or now,
        max_retries=body.max_retries,
        backoff=None if body.backoff is None else backoff_text(body.backoff),
        timeout=checker.timeout(body.timeout),
        misfire_grace=None if grace is None else checker.duration("misfire_grace", grace),
        on_lost=body.on_lost,
        priority=body.priority,
        key=key,
        fingerprint=None if key is None or checker.errors else fingerprint(bytes(raw)),
        tags=checker.tags(body.tags),
        own_id=body.id is not None,
        created_at=now,
        occurrence=due or now,
        overrun=body.overrun,
        concurrency_key=checker.key("concurrency_key", body.concurrency_key),
        concurrency_limit=limit,
        fairness_key=checker.key("fairness_key", body.fairness_key),
        region=body.region,
        name=body.name,
    )
    schedule = None if body.schedule is None else checker.schedule(body.schedule, now_us)
    return new if schedule is None else periodic(new, schedule.text(), due)


def periodic(new: NewTask, schedule: str, due: datetime | None) -> NewTask:
    """A task with a schedule (JSON text) and its first occurrence, at `due` if that is given."""
    plan = schedules.load(schedule, new.created_at)
    first = courses.place(plan, occurrences.first(new.id, plan, new.overrun))
    assert first.occurrence is not None
    assert first.next_run_at is not None
    return new._replace(
        occurrence=first.occurrence,
        due=due or first.next_run_at,
        schedule=schedule,
        interval=plan.every,
        following=first.following if due is None else None,
        zone_data=first.zone_data,
    )


def traced(new: NewTask, traceparent: str | None) -> NewTask:
    """The task in this trace. Not one with a schedule: a trace has an end."""
    if traceparent is None or new.schedule is not None:
        return new
    return new._replace(traceparent=traceparent)


def take_key_header(headers: Sequence[str], body: TaskSubmission, checker: Checker) -> None:
    """The header Idempotency-Key is another way to write the field of that name."""
    if not headers:
        return
    key, name = headers[0], "Idempotency-Key"
    if any(other != key for other in headers):
        checker.wrong(name, "is given more than once")
    elif body.idempotency_key not in (None, key):
        checker.wrong("idempotency_key", f"differs from the {name} header")
    elif not 1 <= len(key) <= KEY_MAX:
        checker.wrong(name, f"must have 1 to {KEY_MAX} characters")
    elif json_guard.has_surrogate(key):  # bytes that are not UTF-8 arrive as such
        checker.wrong(name, "is not UTF-8")
    else:
        body.idempotency_key = key


def fingerprint(raw: bytes) -> bytes:
    """Equal for bodies that say the same, whatever their spacing, order or spelling of numbers."""
    body = comparable(raw)
    body.pop("idempotency_key", None)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()


def comparable(raw: bytes) -> Any:
    """JSON as a value that equals that of JSON that says the same; numbers are in it as texts."""
    return json.loads(raw, parse_float=_number, parse_int=_number)


def _number(text: str) -> str:
    # Tagged, so that 1 and "1" differ; normalized, so that 1.0 and 1 do not.
    try:
        number = _EXACT.normalize(Decimal(text))
    except InvalidOperation:  # an exponent of 19 digits: only where a float is read, as zero
        return f"\0{text}"
    return f"\0{number or 0}"
