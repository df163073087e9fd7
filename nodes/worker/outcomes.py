"""What one attempt comes to, and how a handler asks for it.

    returns a value             completed
    raises Retry                failed, to be retried (after `delay`, or the task's own back-off)
    raises Snooze               put off; no retry is used up
    raises Fail                 failed for good
    raises anything else        failed, to be retried by the task's own back-off
    takes longer than allowed   failed with the type "timed_out", to be retried

A payload that does not fit the handler and a result that cannot be stored fail for good: trying
again would do the work again and end the same way.
"""

# ruff: noqa: N818 - Retry, Snooze and Fail are statements, fixed by the contract

import math
import traceback
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from duly.nodes import exact_json

RESULT_BYTES_MAX: Final = 256 * 1024
"""Longest result, as JSON."""

ERROR_TEXT_MAX: Final = 10_000
"""Longest message and longest traceback, in characters: a message keeps its start, a traceback
its end."""

DELAY_S_MAX: Final = 10 * 366 * 86_400
"""Longest delay that a handler may ask for: ten years."""


class Retry(Exception):
    """Raise in a handler: this attempt failed, try again if retries are left.

    `delay`: seconds or a timedelta until then; None for the task's own back-off.
    Raises ValueError if the delay is negative, not finite or longer than ten years.
    """

    def __init__(self, delay: float | timedelta | None = None, reason: str | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.delay_s = None if delay is None else _seconds(delay)
        self.reason = reason


class Snooze(Exception):
    """Raise in a handler: not now, come back later. This uses up no retry.

    `seconds`: a number or a timedelta. Raises ValueError as `Retry` does.
    """

    def __init__(self, seconds: float | timedelta) -> None:
        self.delay_s = _seconds(seconds)
        super().__init__(f"snoozed for {self.delay_s:g} s")


class Fail(Exception):
    """Raise in a handler: the task has failed for good, do not retry."""

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)
        self.reason = reason


class Outcome(NamedTuple):
    """The part of a report that says what happened."""

    kind: str
    """`completed`, `failed` or `snoozed`."""
    body: bytes | None = None
    """The result or the error, as JSON."""
    retry: bool | None = None
    """For a failure: may it be tried again."""
    delay_s: float | None = None
    """Wish for the time until the next attempt."""


def completed(value: object) -> Outcome:
    """Return the outcome of a handler that returned `value`: a failure if it cannot be stored."""
    try:
        body = exact_json.encode(value)
    except Exception as error:  # noqa: BLE001 - a property of the value may raise anything
        return failure("invalid_result", f"the result cannot be stored: {error}", retry=False)
    if len(body) > RESULT_BYTES_MAX:
        text = f"the result has {len(body)} bytes, more than {RESULT_BYTES_MAX}"
        return failure("result_too_large", text, retry=False)
    return Outcome("completed", body)


def raised(error: BaseException) -> Outcome:
    """Return the outcome of a handler that raised `error`."""
    if isinstance(error, Snooze):
        return snoozed(error.delay_s)
    if isinstance(error, Retry):
        return _failed(error, retry=True, delay_s=error.delay_s)
    return _failed(error, retry=not isinstance(error, Fail))


def failure(kind: str, message: str, *, retry: bool) -> Outcome:
    """Return a failure that Duly found, named by `kind` instead of an exception's class."""
    body = {"type": kind, "message": clean(message)[:ERROR_TEXT_MAX]}
    return Outcome("failed", msgspec.json.encode(body), retry)


def snoozed(delay_s: float) -> Outcome:
    """Return the outcome of an attempt that is to come again after `delay_s`."""
    return Outcome("snoozed", None, None, delay_s)


def clean(text: str) -> str:
    """Replace what JSONB cannot hold: NUL characters and lone surrogates."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _failed(error: BaseException, *, retry: bool, delay_s: float | None = None) -> Outcome:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure itself
        message = "the exception's text cannot be shown"
    body = {
        "type": type(error).__qualname__,
        "message": clean(message)[:ERROR_TEXT_MAX],
        "traceback": _traceback(error),
    }
    return Outcome("failed", msgspec.json.encode(body), retry, delay_s)


def _traceback(error: BaseException) -> str:
    if error.__traceback__ is not None:
        # Begin at the handler, not at the line here that called it.
        error = error.with_traceback(error.__traceback__.tb_next)
    return clean("".join(traceback.format_exception(error)))[-ERROR_TEXT_MAX:]


def _seconds(delay: float | timedelta) -> float:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not (math.isfinite(seconds) and 0 <= seconds <= DELAY_S_MAX):
        raise ValueError(f"a delay is 0 to {DELAY_S_MAX} s, not {delay!r}")
    return seconds
