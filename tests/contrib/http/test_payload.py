"""A payload is checked whole before anything is sent; what is wrong is named."""

import json
from typing import Any

import pytest

from duly.contrib.http import Request
from duly.nodes.exact_json import ExactDecoder

URL = "https://example.org/hook"


def decode(payload: Any) -> Request:
    decoder: ExactDecoder[Request] = ExactDecoder(Request)
    return decoder.decode(payload if isinstance(payload, bytes) else json.dumps(payload))


def request(**fields: Any) -> Request:
    return decode({"url": URL, **fields})


def test_a_url_is_enough() -> None:
    read = request()
    assert (read.method, read.content, read.content_type) == ("POST", None, None)
    assert (read.deadline, read.redirects) == (30.0, 3)


@pytest.mark.parametrize(
    ("fields", "content", "content_type"),
    [
        ({"body": "é"}, "é".encode(), "text/plain; charset=utf-8"),
        ({"body": ""}, b"", "text/plain; charset=utf-8"),
        ({"body_base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"json": {"a": [1, "b"]}}, b'{"a":[1,"b"]}', "application/json"),
        ({"json": None}, b"null", "application/json"),
        ({"json": ""}, b'""', "application/json"),
        ({"json": False}, b"false", "application/json"),
    ],
)
def test_a_body_comes_in_one_of_three_forms(
    fields: dict[str, Any], content: bytes, content_type: str
) -> None:
    read = request(**fields)
    assert (read.content, read.content_type) == (content, content_type)


def test_numbers_are_sent_as_they_came() -> None:
    numbers = b"[12345678901234567890123, 0.1000000000000000055, 1e400]"
    sent = decode(b'{"url": "%s", "json": %s}' % (URL.encode(), numbers)).content
    assert sent is not None
    assert json.loads(sent, parse_int=str, parse_float=str)[:2] == [
        "12345678901234567890123",
        "0.1000000000000000055",
    ]


def test_a_large_body_does_not_hide_what_is_wrong_elsewhere() -> None:
    with pytest.raises(Exception, match=r"\$\.headers"):
        request(json={"text": "x" * 10_000}, headers={"a": 1})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"url": 1}, r"\$\.url"),
        ({"url": "ftp://example.org"}, "url: it does not begin with http"),
        ({"url": "http://u:p@example.org"}, "url: it has a user"),
        ({"url": "http://127.1/"}, "url: its host is not an IPv4 address"),
        ({"method": "post"}, r"'post' - at `\$\.method`"),
        ({"method": "CONNECT"}, r"\$\.method"),
        ({"deadline": 0}, r"\$\.deadline"),
        ({"deadline": 3_601}, r"\$\.deadline"),
        ({"deadline": "1"}, r"\$\.deadline"),
        ({"expect": []}, r"\$\.expect"),
        ({"expect": [199]}, r"\$\.expect\[0\]"),
        ({"expect": [200, 600]}, r"\$\.expect\[1\]"),
        ({"redirects": 11}, r"\$\.redirects"),
        ({"body_base64": "?"}, r"\$\.body_base64"),
        ({"body": "a", "json": 1}, "body, json: only one"),
        ({"json": None, "body_base64": ""}, "body_base64, json: only one"),
        ({"bogus": 1}, "`bogus`"),
        ({"headers": {"a b": "c"}}, "headers: 'a b' is no name"),
        ({"headers": {"": "c"}}, "headers: '' is no name"),
        ({"headers": {"a": "b\r\nc: d"}}, r"headers\.a: a value"),
        ({"headers": {"a": "é"}}, r"headers\.a: a value"),
        ({"headers": {"a": " b"}}, r"headers\.a: a value"),
        ({"headers": {"a": "x" * 8_193}}, r"headers\.a: a value"),
        ({"headers": {"a": "1", "A": "2"}}, r"headers\.A: it is there twice"),
        ({"headers": {f"h{n}": "" for n in range(65)}}, "headers: 65 are more than 64"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(Exception, match=named):
        request(**fields)


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "Connection", "Idempotency-Key", "Upgrade",
     "Duly-Fencing-Token", "DULY-SIGNATURE", "traceparent", "Proxy-Authorization"],
)  # fmt: skip
def test_headers_of_the_worker_cannot_be_set(name: str) -> None:
    with pytest.raises(Exception, match=f"headers.{name}: this one is set by the worker"):
        request(headers={name: "x"})


def test_the_longest_of_everything_fits() -> None:
    read = request(headers={f"h{n}": "x" * 8_192 for n in range(64)}, deadline=3_600, redirects=10)
    assert len(read.headers) == 64


def test_a_url_is_needed() -> None:
    with pytest.raises(Exception, match="`url`"):
        decode({})


def test_what_is_expected() -> None:
    assert request().is_expected(204)
    assert not request().is_expected(304)
    only = request(expect=[404, 410])
    assert only.is_expected(410)
    assert not only.is_expected(200)
