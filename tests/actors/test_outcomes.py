"""What a report says, and what follows it. No I/O."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from duly.actors.outcomes import DELAY_MAX_S, decide, parse_report, without_repeats
from duly.storage.claims import Attempt, Ended, Outcome
from duly.storage.stream_facts import REPORT_JSON_BYTES_MAX

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ID = UUID("01890000-0000-7000-8000-000000000001")
FIXED = '{"kind":"fixed","delay":7,"jitter":0}'


def report(**fields: str | bytes) -> dict[bytes, bytes]:
    plain = {"id": str(ID), "token": "3", "outcome": "completed", "worker": "w1", **fields}
    return {
        name.encode(): value if isinstance(value, bytes) else value.encode()
        for name, value in plain.items()
    }


def ended(
    outcome: Outcome = "failed", may_retry: bool = True, delay_s: float | None = None
) -> Ended:
    return Ended(ID, 3, outcome, "w1", NOW, NOW, may_retry=may_retry, delay_s=delay_s)


def attempt(used: int = 0, allowed: int = 3, on_lost: str = "retry") -> Attempt:
    return Attempt(ID, 3, used, allowed, FIXED, on_lost, NOW, NOW)


def test_a_report_is_read_as_the_protocol_has_it() -> None:
    read = parse_report(
        report(result='{"n":1.50}', started="1795000000000.5", finished="1795000001000"), NOW
    )
    assert (read.id, read.token, read.outcome, read.worker) == (ID, 3, "completed", "w1")
    assert read.result == '{"n":1.50}'
    assert read.started_at == datetime.fromtimestamp(1795000000.0005, UTC)
    assert read.finished_at == datetime.fromtimestamp(1795000001, UTC)


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "17"},
        {"id": b"\xff\xfe"},
        {"token": ""},
        {"token": "-1"},
        {"token": "1.0"},
        {"token": "٣"},
        {"token": str(1 << 63)},
        {"token": "0" * 25 + "9" * 25},
        {"token": "9" * 5000},
    ],
    ids=str,
)
def test_a_report_of_nobody_knows_what_is_unreadable(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^(id|token): "):
        parse_report(report(**fields), NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "done"},
        {"outcome": b"\xff"},
        {"outcome": "x" * 3_000_000},
        {"outcome": "snoozed", "delay": "soon"},
        {"outcome": "snoozed", "delay": "nan"},
        {"outcome": "failed", "delay": "1e999"},
        {"started": "yesterday"},
        {"finished": "inf"},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_report_that_is_wrong_otherwise_is_a_failure(fields: dict[str, str]) -> None:
    read = parse_report(report(**fields), NOW)
    assert (read.id, read.token, read.outcome, read.worker) == (ID, 3, "failed", "w1")
    assert read.error is not None
    assert len(read.error) < 200
    said = json.loads(read.error)
    assert said["type"] == "invalid_report"
    assert said["message"].split(":")[0] in fields


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "text", [b"plain", b"{", b"\xff\xff", b"\0", b"NaN", DEEP], ids=lambda t: t[:8]
)
def test_what_is_no_json_is_kept_as_text(text: bytes) -> None:
    read = parse_report(report(outcome="failed", error=text), NOW)
    assert read.error is not None
    assert "\\u0000" not in read.error
    assert json.loads(read.error) == text.decode(errors="replace").replace("\0", "�")


@pytest.mark.parametrize("text", [b"{bad json", b"NaN", b'"\\ud800"', b"plain"], ids=str)
def test_a_result_that_is_no_json_is_kept_as_text(text: bytes) -> None:
    read = parse_report(report(result=text), NOW)
    assert read.outcome == "completed"
    assert json.loads(read.result or "") == text.decode()


LONGEST = b'"' + b"x" * (REPORT_JSON_BYTES_MAX - 2) + b'"'


@pytest.mark.parametrize("text", [LONGEST + b" ", b"x" * 3_000_000], ids=["json", "no json"])
def test_a_result_that_is_too_long_fails_for_good(text: bytes) -> None:
    read = parse_report(report(result=text, started="1795000000000"), NOW)
    assert (read.outcome, read.result, read.may_retry) == ("failed", None, False)
    assert (read.worker, read.started_at) == ("w1", datetime.fromtimestamp(1795000000, UTC))
    assert json.loads(read.error or "") == {
        "type": "result_too_large",
        "message": f"the result has {len(text)} bytes, more than 262144",
    }
    assert decide(read, attempt(), NOW).again_at is None


def test_the_longest_result_and_error_are_kept() -> None:
    assert parse_report(report(result=LONGEST), NOW).result == LONGEST.decode()
    assert parse_report(report(outcome="failed", error=LONGEST), NOW).error == LONGEST.decode()


def test_the_result_of_what_is_not_completed_does_not_count() -> None:
    read = parse_report(report(outcome="failed", result=LONGEST + b" ", error='"e"'), NOW)
    assert (read.outcome, read.result, read.error) == ("failed", None, '"e"')
    assert read.may_retry


def test_of_an_error_that_is_too_long_the_start_is_kept() -> None:
    text = b'{"type":"timed_out","message":"\0' + b"y" * 3_000_000 + b'"}'
    read = parse_report(report(outcome="failed", error=text, delay="5"), NOW)
    assert (read.outcome, read.may_retry, read.delay_s) == ("failed", True, 5.0)
    said = json.loads(read.error or "")
    assert said["type"] == "error_too_large"
    assert f"{len(text)} bytes" in said["message"]
    assert 10_000 < len(said["message"]) < 10_200
    assert "�yyy" in said["message"]
    late = parse_report(report(outcome="failed", error=text.replace(b"\0", b"")), NOW)
    assert late.outcome == "timed_out"  # whose retry `on_lost` decides


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ('"timed_out"', "timed_out"),
        ('{"type":"timed_out","message":"x"}', "timed_out"),
        ('{"type":"other","message":"timed_out"}', "failed"),
        ('["timed_out"]', "failed"),
        ("timed_out", "failed"),
        (b'["timed_out",' + DEEP + b"]", "failed"),
    ],
    ids=lambda e: str(e)[:20],
)
def test_a_failure_may_be_that_the_time_was_over(error: str | bytes, outcome: str) -> None:
    assert parse_report(report(outcome="failed", error=error), NOW).outcome == outcome


def test_odd_times_and_names_do_no_harm() -> None:
    read = parse_report(report(started="-5", finished="9e99", worker=b"w\0\xff"), NOW)
    assert (read.started_at, read.finished_at, read.worker) == (None, NOW, "w��")
    assert parse_report(report(worker=""), NOW).worker is None
    assert parse_report(report(worker="é" * 5_000), NOW).worker == "é" * 200


def test_a_failure_takes_a_retry_by_the_backoff() -> None:
    decision = decide(ended(), attempt(), NOW)
    assert (decision.again_at, decision.counts) == (NOW + timedelta(seconds=7), True)


@pytest.mark.parametrize("kind", ["exponential", "linear", "fixed"])
def test_the_ten_thousandth_retry_waits_as_long_as_the_cap(kind: str) -> None:
    backoff = {"kind": kind, "delay": 3600, "factor": 1000, "max_delay": 3600, "jitter": 0}
    late = attempt(used=9_999, allowed=10_000)._replace(backoff=json.dumps(backoff))
    assert decide(ended(), late, NOW).again_at == NOW + timedelta(hours=1)


@pytest.mark.parametrize("outcome", ["failed", "lost", "timed_out"])
def test_the_last_retry_is_the_last(outcome: Outcome) -> None:
    assert decide(ended(outcome), attempt(used=2), NOW).again_at is not None
    assert decide(ended(outcome), attempt(used=3), NOW).again_at is None
    assert decide(ended(outcome), attempt(allowed=0), NOW).again_at is None


def test_a_report_may_ask_for_no_retry_or_for_another_delay() -> None:
    assert decide(ended(may_retry=False), attempt(), NOW).again_at is None
    asked = decide(ended(delay_s=90.5), attempt(), NOW)
    assert (asked.again_at, asked.counts) == (NOW + timedelta(seconds=90.5), True)
    assert decide(ended(delay_s=-5.0), attempt(), NOW).again_at == NOW


def test_a_delay_is_cut_to_the_longest() -> None:
    longest = NOW + timedelta(seconds=DELAY_MAX_S)
    assert decide(ended("snoozed", delay_s=1e300), attempt(), NOW).again_at == longest


def test_a_snooze_needs_no_retry_left() -> None:
    decision = decide(ended("snoozed", delay_s=3.0), attempt(used=3), NOW)
    assert (decision.again_at, decision.counts) == (NOW + timedelta(seconds=3), False)


def test_on_lost_fail_is_about_attempts_that_may_still_go_on() -> None:
    assert decide(ended("lost"), attempt(on_lost="fail"), NOW).again_at is None
    assert decide(ended("timed_out"), attempt(on_lost="fail"), NOW).again_at is None
    assert decide(ended("failed"), attempt(on_lost="fail"), NOW).again_at is not None


def test_the_first_report_of_a_token_counts() -> None:
    first, other = ended("completed"), ended()._replace(id=uuid4())
    assert without_repeats([first, ended(), other, first]) == [first, other]
