"""What one attempt comes to, and how a handler asks for it.

    returns a value             completed
    raises Retry                failed, to be retried (after `delay`, or the task's own back-off)
    raises Snooze               put off; no retry is used up
    raises Fail                 failed for good
    `exactly_once` finds
      the effect applied        completed, with the result that was stored with it
      a newer attempt           nothing: that one reports
    `complete_in` or its commit
    finds another outcome       as by `exactly_once`
    raises anything else        failed, to be retried by the task's own back-off
    takes longer than allowed   failed with the type "timed_out", to be retried

A payload that does not fit the handler and a result that cannot be stored fail for good: trying
again would do the work again and end the same way.
"""

# ruff: noqa: N818 - these exceptions are statements; Retry, Snooze and Fail are fixed by the contract

import math
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from duly.nodes import exact_json
from duly.nodes.codec import Codec, CodecError
from duly.nodes.codec.envelope import is_sealed, opened_json, sealed_error, sealed_json
from duly.nodes.transactions.drivers import detail, sqlstate
from duly.storage.stream_facts import GIVEN_BACK, REPORT_JSON_BYTES_MAX

RESULT_BYTES_MAX: Final = REPORT_JSON_BYTES_MAX
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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay_s, self.reason), self.__dict__


class Snooze(Exception):
    """Raise in a handler: not now, come back later. This uses up no retry.

    `seconds`: a number or a timedelta. Raises ValueError as `Retry` does.
    """

    def __init__(self, seconds: float | timedelta) -> None:
        self.delay_s = _seconds(seconds)
        super().__init__(f"snoozed for {self.delay_s:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay_s,), self.__dict__


class Fail(Exception):
    """Raise in a handler: the task has failed for good, do not retry."""

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)
        self.reason = reason


class AlreadyDone(BaseException):
    """`exactly_once` found the effect of this occurrence applied, so its block was not run.

    Or `complete_in` found the attempt completed.

    Left alone, it makes the attempt `completed`, with the stored result. Catch it by name if there
    is more to do after the effect. It is no `Exception`, lest a handler's `except Exception` turn
    what has been done into a failure.
    """

    def __init__(self, result: Any) -> None:
        super().__init__("the effect has been applied by an earlier attempt")
        self.result = result
        """What that attempt had set as `effect.result`; None if nothing."""


class Superseded(BaseException):
    """`exactly_once` or `complete_in` found that this attempt no longer counts; the block was not run.

    A newer attempt has applied its effect, or the attempt was told to stop. Left alone, the attempt
    ends without a report, which would be stale. It is no `Exception`, for the same reason.
    """


_STALE: Final = "DU002"
_COMPLETED: Final = "DU003"
"""What `duly.complete` raises, or the commit after it."""

_RESULT: Final = exact_json.ExactDecoder[Any]()


def over(error: BaseException, codec: Codec | None = None) -> BaseException:
    """AlreadyDone or Superseded if that is what an error of PostgreSQL says; else the error itself."""
    state = sqlstate(error)
    if state == _STALE:
        return Superseded(str(error))
    if state == _COMPLETED:
        try:
            return AlreadyDone(kept_result(detail(error) or "null", codec))
        except CodecError as unread:
            return unread
    return error


def kept_result(text: str, codec: Codec | None) -> Any:
    """A result that an attempt has stored in PostgreSQL itself; raises CodecError if it cannot be read."""
    data = text.encode()
    return _RESULT.decode(opened_json(codec, data) if is_sealed(data) else data)


def result_json(value: object, codec: Codec | None) -> bytes:
    """A result as it is stored; raises what `exact_json.encode` does, CodecError, and TooLong."""
    body = exact_json.encode(value)
    if codec is not None:
        body = sealed_json(codec, body)
    if len(body) > RESULT_BYTES_MAX:
        kind = "" if codec is None else ", encrypted"
        raise TooLong(f"the result has {len(body)} bytes{kind}, more than {RESULT_BYTES_MAX}")
    return body


class TooLong(Exception):
    """A result has more bytes than may be stored."""


class Outcome(NamedTuple):
    """The part of a report that says what happened."""

    kind: str
    """`completed`, `failed` or `snoozed`."""
    body: bytes | None = None
    """The result or the error, as JSON; of a snooze why it was not begun."""
    retry: bool | None = None
    """For a failure: may it be tried again."""
    delay_s: float | None = None
    """Wish for the time until the next attempt."""


SUPERSEDED: Final = Outcome("superseded")
"""An attempt that is not to be reported."""


def completed(value: object, codec: Codec | None = None) -> Outcome:
    """Return the outcome of a handler that returned `value`: a failure if it cannot be stored."""
    try:
        body = result_json(value, codec)
    except TooLong as error:
        return failure("result_too_large", str(error), retry=False)
    except Exception as error:  # noqa: BLE001 - a property of the value may raise anything
        text = f"the result cannot be stored: {error}"
        return failure("invalid_result", text, retry=False, codec=codec)
    return Outcome("completed", body)


def raised(error: BaseException, codec: Codec | None = None) -> Outcome:
    """Return the outcome of a handler that raised `error`; SUPERSEDED: it is not to be reported."""
    # A task group wraps what was raised in it.
    leaves = [over(leaf, codec) for leaf in _leaves(error)]
    if any(isinstance(leaf, Superseded) for leaf in leaves):
        return SUPERSEDED
    if isinstance(leaves[0], AlreadyDone) and all(isinstance(e, AlreadyDone) for e in leaves):
        return completed(leaves[0].result, codec)
    if isinstance(error, Snooze):
        return snoozed(error.delay_s)
    if isinstance(error, Retry):
        return _failed(error, codec, retry=True, delay_s=error.delay_s)
    return _failed(error, codec, retry=not isinstance(error, Fail))


def failure(kind: str, message: str, *, retry: bool, codec: Codec | None = None) -> Outcome:
    """Return a failure that Duly found, named by `kind` instead of an exception's class.

    `codec`: for a message that may tell something of the payload or the result.
    """
    told = {"message": clean(message)[:ERROR_TEXT_MAX]}
    return Outcome("failed", _error_json(kind, told, codec), retry)


def snoozed(delay_s: float) -> Outcome:
    """Return the outcome of an attempt that is to come again after `delay_s`."""
    return Outcome("snoozed", None, None, delay_s)


def given_back(delay_s: float, reason: str) -> Outcome:
    """Return the outcome of an attempt that this worker cannot begin; `reason` shows as the task's error."""
    told = {"message": clean(reason)[:ERROR_TEXT_MAX]}
    return Outcome("snoozed", _error_json(GIVEN_BACK, told, None), None, delay_s)


def clean(text: str) -> str:
    """Replace what JSONB cannot hold: NUL characters and lone surrogates."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _failed(
    error: BaseException, codec: Codec | None, *, retry: bool, delay_s: float | None = None
) -> Outcome:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure itself
        message = "the exception's text cannot be shown"
    told = {"message": clean(message)[:ERROR_TEXT_MAX], "traceback": _traceback(error)}
    body = _error_json(type(error).__qualname__, told, codec)
    return Outcome("failed", body, retry, delay_s)


def _error_json(kind: str, told: dict[str, str], codec: Codec | None) -> bytes:
    if codec is not None:
        try:
            return sealed_error(codec, kind, told)
        except CodecError as error:
            told = {"message": f"what it said cannot be encrypted: {error}"}
    return msgspec.json.encode({"type": kind, **told})


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


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
