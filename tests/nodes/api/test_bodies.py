"""What is said about a body that does not fit, and problems as answers."""

import json
from typing import Any

import msgspec
import pytest

from duly.nodes.api import bodies
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid, not_found, unavailable
from duly.nodes.api.wire import Batch, ReportBatch, TaskSubmission

_task = msgspec.json.Decoder(TaskSubmission)
_batch = msgspec.json.Decoder(Batch)
_reports = msgspec.json.Decoder(ReportBatch)


def problem(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        bodies.decode(decoder, body)
    return caught.value


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (b"[]", "body", "Expected `object`, got `array`"),
        (b"{}", "type", "is required"),
        (b'{"type":"a","x":1}', "x", "is not a known field"),
        (b'{"type":"a","backoff":{"x":1}}', "backoff.x", "is not a known field"),
        (
            b'{"type":"a","queue":"../b"}', "queue",
            "has characters other than A-Z a-z 0-9 _ . : / -, or a part that is . or ..",
        ),
        (b'{"type":"a b"}', "type", "has characters other than A-Z a-z 0-9 _ . : / -"),
        (b'{"type":"a","tags":{"":"a"}}', "tags", "Expected `str` of length >= 1"),
        (b'{"type":"a","tags":{"a":1}}', "tags[...]", "Expected `str`, got `int`"),
        (b'{"type":"a","priority":99}', "priority", "Expected `int` <= 9"),
        (b'{"type":"\\ud800"}', "type", "holds a lone surrogate, which is not a character"),
        (b'{"type":"a","payload":%s%s}' % (b"[" * 9999, b"]" * 9999), "payload",
         "is nested deeper than 200"),
    ],
)  # fmt: skip
def test_fields_are_named(body: bytes, field: str, message: str) -> None:
    found = problem(body, _task)
    assert (found.status, list(found.errors)) == (422, [FieldError(field, message)])


def test_items_are_named() -> None:
    assert problem(b'{"tasks":7}', _batch).errors[0].field == "tasks"
    assert problem(b'{"reports":[{"id":"x"}]}', _reports).errors[0].field == "reports[0].id"
    assert problem(b'{"reports":[{}]}', _reports).errors[0].field == "reports[0].token"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"x", b'{"type":"\xff"}', b"\xff\xfe", b'{"payload":NaN}']
)
def test_what_is_not_json_is_400(body: bytes) -> None:
    assert problem(body, _task).status == 400


def test_a_problem_as_an_answer() -> None:
    answer = invalid(*(FieldError(f"f{n}", "is wrong") for n in range(5))).response()
    assert (answer.status, answer.content_type) == (422, "application/problem+json")
    assert isinstance(answer.body, bytes)
    body = json.loads(answer.body)
    assert body["detail"] == "f0: is wrong; f1: is wrong; f2: is wrong"
    assert [error["field"] for error in body["errors"]] == [f"f{n}" for n in range(5)]
    assert body["type"] == "about:blank"


def test_the_usual_problems() -> None:
    assert unavailable("x").response().headers["Retry-After"] == "1"
    assert not_found("task 7").response().status == 404
    answer = conflict("no", task={"id": 1}).response()
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body)["task"] == {"id": 1}
