"""What returned values and raised exceptions come to."""

import json
import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from duly.nodes.worker.outcomes import (
    ERROR_TEXT_MAX,
    RESULT_BYTES_MAX,
    Fail,
    Outcome,
    Retry,
    Snooze,
    completed,
    failure,
    raised,
)


def error_of(outcome: Outcome) -> dict[str, str]:
    assert outcome.kind == "failed"
    assert outcome.body is not None
    error: dict[str, str] = json.loads(outcome.body)
    assert "\x00" not in json.dumps(error)
    return error


def caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as again:  # noqa: BLE001 - gives it a traceback
        return again


def test_a_value_becomes_the_result() -> None:
    assert completed({"n": Decimal("1e400")}) == Outcome("completed", b'{"n":1E+400}')
    assert completed(None) == Outcome("completed", b"null")


@pytest.mark.parametrize(
    "value", [object(), "a\x00b", "\ud800", math.nan, {"x": [math.inf]}, {(1,): 2}]
)
def test_what_cannot_be_stored_fails_for_good(value: Any) -> None:
    outcome = completed(value)
    assert outcome.retry is False
    assert error_of(outcome)["type"] == "invalid_result"


def test_a_value_whose_encoding_raises_fails_for_good() -> None:
    class Rude:
        @property
        def __dataclass_fields__(self) -> Any:
            raise RuntimeError("no")

    assert completed(Rude()).retry is False


def test_a_result_has_a_bound() -> None:
    longest = "x" * (RESULT_BYTES_MAX - 2)
    assert completed(longest).kind == "completed"
    outcome = completed(longest + "x")
    assert outcome.retry is False
    assert error_of(outcome)["type"] == "result_too_large"


def test_retry_asks_for_another_attempt() -> None:
    outcome = raised(caught(Retry(delay=timedelta(minutes=1), reason="busy")))
    assert (outcome.retry, outcome.delay_s) == (True, 60.0)
    assert error_of(outcome)["message"] == "busy"
    assert raised(caught(Retry())).delay_s is None


def test_snooze_is_no_failure() -> None:
    assert raised(caught(Snooze(1.5))) == Outcome("snoozed", None, None, 1.5)


def test_fail_is_final() -> None:
    outcome = raised(caught(Fail("no such address")))
    assert outcome.retry is False
    assert error_of(outcome)["message"] == "no such address"


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, timedelta(days=-1), 1e12])
def test_an_impossible_delay_is_refused(delay: Any) -> None:
    with pytest.raises(ValueError, match="a delay is"):
        Snooze(delay)
    with pytest.raises(ValueError, match="a delay is"):
        Retry(delay)


def test_an_exception_is_a_failure_with_its_traceback() -> None:
    outcome = raised(caught(LookupError("no such row")))
    error = error_of(outcome)
    assert (error["type"], error["message"]) == ("LookupError", "no such row")
    assert error["traceback"].endswith("LookupError: no such row\n")
    assert outcome.retry is True


def test_error_texts_are_cleaned_and_cut() -> None:
    error = error_of(raised(caught(ValueError("a\x00\ud800" + "x" * 50_000))))
    assert error["message"].startswith("a\ufffd?x")
    assert len(error["message"]) == ERROR_TEXT_MAX
    assert len(error["traceback"]) == ERROR_TEXT_MAX
    assert len(error_of(failure("t", "x" * 50_000, retry=True))["message"]) == ERROR_TEXT_MAX


def test_an_exception_without_text_is_still_reported() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert (
        error_of(raised(caught(MuteError())))["message"] == "the exception's text cannot be shown"
    )
