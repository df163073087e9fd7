"""A checked body becomes a task, ready to insert."""

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from duly.actors import courses
from duly.nodes.api import follow_ups, json_guard
from duly.nodes.api.checker import Checker
from duly.nodes.api.wire import KEY_MAX, TaskSubmission
from duly.storage.ids import uuid7
from duly.storage.submitting import NewTask
from duly.wheel import occurrences
from duly.wheel import schedule as schedules
from duly.wheel.backoff import Backoff
from duly.wheel.durations import from_us, parse_time

_encoder = msgspec.json.Encoder()

# Wide enough to drop no digit of any number that may be stored.
_EXACT = Context(prec=4 * json_guard.DIGITS_MAX, Emax=MAX_EMAX, Emin=MIN_EMIN)


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
    if body.on_success or body.on_failure or body.after:
        new = follow_ups.add(new, body, checker, payload_limit)
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
    """Equal for bodies that say the same, whatever their spacing, order or spelling of numbers and of `run_at`.

    `duly_comparable` in SQL writes the same text, so that `duly.submit` knows the keys of the API.
    """
    body = comparable(raw)
    body.pop("idempotency_key", None)
    body.setdefault("payload", None)
    run_at = body.pop("run_at", None)
    if run_at is not None:
        body["run_at"] = parse_time(run_at).isoformat()
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
