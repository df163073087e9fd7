"""A body becomes a task: times, fingerprints, keys."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import Problem
from duly.nodes.api.submissions import fingerprint, new_task, take_key_header
from duly.nodes.api.wire import TaskSubmission
from duly.storage.submitting import NewTask
from duly.wheel.durations import to_us

NOW_US = 1_900_000_000_000_000


def made(limit: int = 1000, **fields: Any) -> tuple[NewTask, list[str]]:
    raw = json.dumps({"type": "a", **fields}).encode()
    checker = Checker()
    body = msgspec.json.decode(raw, type=TaskSubmission)
    task = new_task(body, raw, checker, NOW_US, limit)
    return task, [error.field for error in checker.errors]


@pytest.mark.parametrize(
    ("fields", "late_us"),
    [
        ({}, 0), ({"delay": 0}, 0), ({"delay": 0.000001}, 1), ({"delay": "PT1M"}, 60_000_000),
        ({"delay": 2_147_483.648}, 2_147_483_648_000), ({"run_at": None, "delay": None}, 0),
        ({"run_at": "2030-03-17T17:46:41+00:00"}, 1_000_000),
        ({"run_at": "1970-01-01T00:00:00Z"}, -NOW_US),
    ],
)  # fmt: skip
def test_when_a_task_is_due(fields: dict[str, Any], late_us: int) -> None:
    task, wrong = made(**fields)
    assert wrong == []
    assert to_us(task.due) - NOW_US == late_us


def test_everything_wrong_is_told_at_once() -> None:
    _, wrong = made(
        run_at="x", timeout=-1, misfire_grace="x", payload=["\0"], tags={"t": "\0"},
        idempotency_key="\0",
    )  # fmt: skip
    assert sorted(wrong) == [
        "idempotency_key", "misfire_grace", "payload[0]", "run_at", "tags.t", "timeout",
    ]  # fmt: skip
    assert made(run_at="2030-01-01T00:00:00Z", delay=1)[1] == ["delay"]


def test_the_largest_payload() -> None:
    assert made(limit=10, payload="x" * 8)[1] == []
    with pytest.raises(Problem) as caught:
        made(limit=10, payload="x" * 9)
    assert caught.value.status == 413
    assert [error.field for error in caught.value.errors] == ["payload"]


def test_only_a_task_with_a_key_has_a_fingerprint() -> None:
    assert made()[0].fingerprint is None
    assert made(idempotency_key="k")[0].fingerprint is not None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":2}', '{ "b" : 2, "a" : 1 }', True),
        ('{"a":1}', '{"a":1.0}', True),
        ('{"a":100}', '{"a":1e2}', True),
        ('{"a":0}', '{"a":-0.0}', True),
        ('{"a":"é"}', '{"a":"\\u00e9"}', True),
        ('{"a":1,"idempotency_key":"x"}', '{"a":1}', True),
        ('{"a":{"idempotency_key":"x"}}', '{"a":{}}', False),
        ('{"a":1}', '{"a":"1"}', False),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":null}', "{}", False),
        ('{"payload":null}', "{}", True),
        ('{"run_at":null}', "{}", True),
        ('{"run_at":"2030-01-01T00:00:00Z"}', '{"run_at":"2030-01-01T01:00:00.0+01:00"}', True),
        ('{"run_at":"2030-01-01T00:00:00Z"}', '{"run_at":"2030-01-01T00:00:00.000001Z"}', False),
        ('{"run_at":"2030-01-01T00:00:00Z"}', "{}", False),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ('{"a":1e400}', '{"a":1e401}', False),
        ('{"a":1e-99999999999999999999}', '{"a":1e-99999999999999999999}', True),
        ('{"a":%s1}' % ("7" * 900), '{"a":%s2}' % ("7" * 900), False),
    ],
)
def test_c42_fingerprints(one: str, other: str, same: bool) -> None:
    assert (fingerprint(one.encode()) == fingerprint(other.encode())) is same


@given(st.integers(), st.integers())
def test_c42_fingerprints_tell_integers_of_any_size_apart(one: int, other: int) -> None:
    prints = [fingerprint(b'{"payload":%d}' % number) for number in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)


@pytest.mark.parametrize(
    ("headers", "field", "key", "wrong"),
    [
        ([], "k", "k", []),
        (["k"], None, "k", []),
        (["k", "k"], "k", "k", []),
        (["é"], None, "é", []),
        (["k"], "l", "l", ["idempotency_key"]),
        (["k", "l"], None, None, ["Idempotency-Key"]),
        ([""], None, None, ["Idempotency-Key"]),
        (["k" * 256], None, None, ["Idempotency-Key"]),
        (["a\udcff"], None, None, ["Idempotency-Key"]),
    ],
)
def test_the_key_header(
    headers: list[str], field: str | None, key: str | None, wrong: list[str]
) -> None:
    body, checker = TaskSubmission(type="a", idempotency_key=field), Checker()
    take_key_header(headers, body, checker)
    assert [error.field for error in checker.errors] == wrong
    assert body.idempotency_key == key
