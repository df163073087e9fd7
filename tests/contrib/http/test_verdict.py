"""What an answer means for the task."""

import email.utils
import json
from collections.abc import Mapping
from typing import Any

import pytest
from multidict import CIMultiDict

from duly.contrib.http import Request, TryAgainError, UnexpectedStatusError
from duly.contrib.http.connection import Answer
from duly.contrib.http.settings import BODY_BYTES_MAX
from duly.contrib.http.verdict import judge, retry_after
from duly.nodes.worker import Fail, outcomes

NOW_S = 1_790_000_000.0
DAY_S = 86_400.0


def verdict(
    status: int,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    truncated: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    return judge(
        Request(url="https://example.org", **fields),
        Answer(status, CIMultiDict(headers or {}), body, truncated),
        0,
        now_s=NOW_S,
        retry_after_max_s=DAY_S,
    )


def date(at_s: float) -> str:
    return email.utils.formatdate(at_s, usegmt=True)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_a_success(status: int) -> None:
    assert verdict(status)["status"] == status


def test_the_result_has_status_some_headers_and_the_begin_of_the_body() -> None:
    headers = {"content-type": "text/plain", "Set-Cookie": "a=b", "ETag": "x" * 600}
    assert verdict(200, headers, "hé".encode(), truncated=True) == {
        "status": 200,
        "headers": {"content-type": "text/plain", "etag": "x" * 500},
        "body": "hé",
        "truncated": True,
        "redirects": 0,
    }


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 599])
def test_what_may_work_later_is_tried_again(status: int) -> None:
    with pytest.raises(TryAgainError, match=f"^{status}") as caught:
        verdict(status)
    assert caught.value.delay_s is None
    assert outcomes.raised(caught.value).retry is True


@pytest.mark.parametrize("status", [300, 301, 304, 400, 401, 403, 404, 409, 410, 422, 451, 499])
def test_what_would_end_the_same_way_is_not(status: int) -> None:
    with pytest.raises(UnexpectedStatusError, match=f"^{status}") as caught:
        verdict(status)
    assert isinstance(caught.value, Fail)
    assert outcomes.raised(caught.value).retry is False


def test_the_reason_has_the_begin_of_the_body() -> None:
    with pytest.raises(UnexpectedStatusError) as caught:
        verdict(422, body=b"no such customer" + b"x" * 3_000)
    assert str(caught.value).startswith("422 Unprocessable")
    assert ": no such customerxxx" in str(caught.value)
    assert len(str(caught.value)) < 1_100


def test_the_task_may_name_what_it_expects() -> None:
    assert verdict(404, expect=[404])["status"] == 404
    assert verdict(503, expect=[503])["status"] == 503
    with pytest.raises(UnexpectedStatusError, match=r"^202 Accepted"):
        verdict(202, expect=[200])


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("120", 120.0),
        ("1", 1.0),
        ("0", None),
        ("99999999", DAY_S),
        ("9" * 5_000, None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
        ("soon", None),
        (date(NOW_S + 90), 90.0),
        (date(NOW_S + 1e8), DAY_S),
        (date(NOW_S - 90), None),
        ("Mon, 01 Jan 999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 9999 00:00:00 -9999", None),
    ],
)
def test_the_wait_that_a_server_asks_for(value: str, wait_s: float | None) -> None:
    assert retry_after(value, NOW_S, DAY_S) == wait_s


@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_wait_is_the_delay_of_the_retry(status: int) -> None:
    with pytest.raises(TryAgainError) as caught:
        verdict(status, {"retry-after": "7"})
    assert outcomes.raised(caught.value).delay_s == 7.0


def test_a_refusal_is_not_tried_again_whatever_it_asks_for() -> None:
    with pytest.raises(UnexpectedStatusError):
        verdict(403, {"Retry-After": "7"})


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_that_was_cut_is_left_out(cut: int) -> None:
    body = ("a" * 5 + "😀").encode()[: 5 + cut]
    assert verdict(200, body=body, truncated=True)["body"] == "aaaaa"
    assert verdict(200, body="aé".encode(), truncated=True)["body"] == "aé"
    assert verdict(200, body=b"", truncated=True)["body"] == ""


def test_what_is_packed_is_not_shown() -> None:
    assert verdict(200, {"Content-Encoding": "gzip"}, b"\x1f\x8b")["body"] is None


@pytest.mark.parametrize("byte", [b"\0", b"\1", b'"', b"\\", b"\xff", b"\xed\xa0\x80"])
def test_the_longest_body_fits_a_result(byte: bytes) -> None:
    headers = dict.fromkeys(("ETag", "Date", "Location", "X-Request-Id"), "\x01�" * 4000)
    body = (byte * BODY_BYTES_MAX)[:BODY_BYTES_MAX]
    outcome = outcomes.completed(verdict(200, headers, body, truncated=True))
    assert outcome.kind == "completed", outcome.body
    assert outcome.body is not None
    assert json.loads(outcome.body)["status"] == 200
