"""Decides what follows an attempt that ended: again, when, or never. Pure."""

import logging
import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from duly.actors import courses
from duly.storage.claims import Attempt, Ended, Outcome, Settlement
from duly.storage.ids import read_id
from duly.storage.stream_facts import REPORT_JSON_BYTES_MAX, WORKER_CHARS_MAX
from duly.wheel import occurrences
from duly.wheel.backoff import Backoff, delay_s
from duly.wheel.occurrences import SKIPS_MAX
from duly.wheel.schedule_fields import ScheduleError

DELAY_MAX_S = 366 * 86_400.0
"""Longest delay that a worker may ask for; longer ones are cut to it."""

_ERROR_START_CHARS = 10_000
"""What is kept of an error that is too long."""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding a foreign worker's JSON may raise; RecursionError: nested too deeply to read."""

log = logging.getLogger("duly.recorder")

_DEFAULT = Backoff()
_decoder = msgspec.json.Decoder(Backoff)
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


def decide(
    ended: Ended,
    attempt: Attempt,
    now: datetime,
    rand: Callable[[], float] = random.random,
    skips_max: int = SKIPS_MAX,
) -> Settlement:
    """What follows an attempt that ended.

    If a user's transaction has completed it, that counts, whatever was reported. A snooze burns no retry. A failure takes a retry if there is one and it may be retried. Else the
    occurrence is over: a periodic task goes on to its next one, and skips `skips_max` at most.
    """
    if attempt.completion is not None:
        ended = completed(ended, attempt.completion)
    if ended.outcome == "snoozed":
        return Settlement(ended, attempt, now + _delay(ended.delay_s or 0.0))
    # Lost or timed out, the work may still go on somewhere: with `fail` it must not start again.
    unknown = ended.outcome in ("lost", "timed_out")
    may_retry = ended.may_retry and not (unknown and attempt.on_lost == "fail")
    if ended.outcome == "completed" or not may_retry or attempt.retry_count >= attempt.max_retries:
        return _over(ended, attempt, now, skips_max)
    if ended.delay_s is not None:
        wait = _delay(ended.delay_s)
    else:
        backoff = _decoder.decode(attempt.backoff) if attempt.backoff else _DEFAULT
        wait = timedelta(seconds=delay_s(backoff, attempt.retry_count + 1, rand()))
    return Settlement(ended, attempt, now + wait, counts=True)


class _Completion(msgspec.Struct):
    """What a user's transaction has committed of an attempt."""

    finished_at: datetime
    result: msgspec.Raw
    worker: str | None = None


def completed(ended: Ended, completion: str) -> Ended:
    """The attempt as a user's transaction has completed it; of when it began only a report can tell."""
    said = _completions.decode(completion)
    reported = ended.outcome == "completed"
    return Ended(
        id=ended.id,
        token=ended.token,
        outcome="completed",
        worker=said.worker or ended.worker,
        started_at=ended.started_at,
        finished_at=ended.finished_at if reported else said.finished_at,
        result=bytes(said.result).decode(),
    )


def _over(ended: Ended, attempt: Attempt, now: datetime, skips_max: int) -> Settlement:
    if attempt.schedule is None:
        status: Literal["completed", "failed"] = (
            "completed" if ended.outcome == "completed" else "failed"
        )
        return Settlement(ended, attempt, status=status)
    try:
        course = courses.running(attempt)
    except ScheduleError as error:  # its zone is not in this node's data any more
        log.error("task %s ends, its schedule is not understood: %s", attempt.id, error)
        said = _said("schedule", str(error))
        return Settlement(ended._replace(error=said), attempt, status="failed")
    step = occurrences.ended(course, now, skips_max)
    return Settlement(
        ended, attempt, place=courses.place(course.plan, step), status="completed",
        ran=occurrences.counts(course),
    )  # fmt: skip


_completions = msgspec.json.Decoder(_Completion)


def _delay(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(0.0, seconds), DELAY_MAX_S))


def is_token(text: str) -> bool:
    """True for a number that a row's version can be."""
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 1 << 63


def parse_report(fields: dict[bytes, bytes], now: datetime) -> Ended:
    """Read a report entry (design, section 7).

    What tells whose report it is must be right: else ValueError, which names the field. Anything
    else that is wrong makes it a failure of the attempt, which its retries bound. A result that is
    too long fails the task for good, as in `duly.Worker`: a retry would do the work again.
    """
    try:
        task_id = read_id(_text(fields, b"id"))
    except ValueError:
        raise ValueError("id: missing or not a UUID") from None
    token = _text(fields, b"token")
    if not is_token(token):
        raise ValueError("token: not a number, or out of range")
    try:
        return _ended(task_id, int(token), fields, now)
    except ValueError as wrong:
        said = _said("invalid_report", str(wrong))
        return Ended(task_id, int(token), "failed", _worker(fields), None, now, error=said)


def _ended(task_id: UUID, token: int, fields: dict[bytes, bytes], now: datetime) -> Ended:
    outcome = _text(fields, b"outcome")
    if outcome not in ("completed", "failed", "snoozed"):
        raise ValueError(f"outcome: {outcome[:40]!r} is not completed, failed or snoozed")
    error, result = fields.get(b"error"), None
    if outcome == "completed":
        result = fields.get(b"result")
        if result is not None and len(result) > REPORT_JSON_BYTES_MAX:
            return _without_result(task_id, token, fields, now)
    return Ended(
        id=task_id,
        token=token,
        outcome=refined(outcome, error),
        worker=_worker(fields),
        started_at=_instant(fields, b"started"),
        finished_at=_instant(fields, b"finished") or now,
        result=_json(result),
        error=_error(error),
        may_retry=fields.get(b"retry", b"1") != b"0",
        delay_s=_number(fields, b"delay"),
    )


def _without_result(task_id: UUID, token: int, fields: dict[bytes, bytes], now: datetime) -> Ended:
    return Ended(
        id=task_id,
        token=token,
        outcome="failed",
        worker=_worker(fields),
        started_at=_instant(fields, b"started"),
        finished_at=_instant(fields, b"finished") or now,
        error=_said("result_too_large", _too_long("result", fields[b"result"])),
        may_retry=False,
    )


def _too_long(what: str, raw: bytes) -> str:
    return f"the {what} has {len(raw)} bytes, more than {REPORT_JSON_BYTES_MAX}"


def _said(kind: str, message: str) -> str:
    body = {"type": kind, "message": message.replace("\0", "�")}
    return msgspec.json.encode(body).decode()


def refined(outcome: str, error: bytes | None) -> Outcome:
    """A worker can only say `failed`; its error says that the time was over."""
    if outcome == "failed" and error is not None and b"timed_out" in error:
        try:
            said = msgspec.json.decode(error)
        except _UNREADABLE:
            return "failed"
        if said == "timed_out" or (isinstance(said, dict) and said.get("type") == "timed_out"):
            return "timed_out"
    return outcome  # type: ignore[return-value]  # checked by the caller


def _worker(fields: dict[bytes, bytes]) -> str | None:
    return worker_name(fields.get(b"worker", b"")) or None


def worker_name(raw: bytes) -> str:
    """A worker's id as it can be stored: cut, and without what PostgreSQL's text cannot hold."""
    return raw.decode(errors="replace").replace("\0", "�")[:WORKER_CHARS_MAX]


def _error(raw: bytes | None) -> str | None:
    """An error that is too long is replaced by its beginning."""
    if raw is None or len(raw) <= REPORT_JSON_BYTES_MAX:
        return _json(raw)
    start = raw.decode(errors="replace")[:_ERROR_START_CHARS]
    return _said("error_too_large", f"{_too_long('error', raw)}; it begins: {start}")


def _json(raw: bytes | None) -> str | None:
    """JSON text as it came; what is not JSON (a foreign worker's plain text) as a JSON string."""
    if raw is None:
        return None
    text = raw.decode(errors="replace")
    try:
        _is_json(raw)
    except _UNREADABLE:
        return msgspec.json.encode(text.replace("\0", "�")).decode()
    return text


def _text(fields: dict[bytes, bytes], name: bytes) -> str:
    if name not in fields:
        raise ValueError(f"{name.decode()}: missing")
    return fields[name].decode(errors="replace")


def _number(fields: dict[bytes, bytes], name: bytes) -> float | None:
    if not fields.get(name):
        return None
    try:
        value = float(fields[name])
    except ValueError:
        raise ValueError(f"{name.decode()}: not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{name.decode()}: not a finite number")
    return value


def _instant(fields: dict[bytes, bytes], name: bytes) -> datetime | None:
    ms = _number(fields, name)
    if ms is None or not 0 < ms < 4e13:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC)


def without_repeats(ended: Sequence[Ended]) -> list[Ended]:
    """The first of each (id, token)."""
    first: dict[tuple[object, int], Ended] = {}
    for one in ended:
        first.setdefault((one.id, one.token), one)
    return list(first.values())
