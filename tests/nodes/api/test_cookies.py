"""Cookies are of one token and one cluster, and of a time."""

import hashlib
from datetime import UTC, datetime

import pytest

from duly.nodes.api import cookies
from duly.nodes.api.cookies import Cookies
from duly.nodes.settings import Token

NOW_US = 1_900_000_000_000_000


def _token(name: str, expires_at: datetime | None = None) -> Token:
    return Token(name, "read", hashlib.sha256(name.encode()).hexdigest(), expires_at)


def _later(seconds: float) -> int:
    return NOW_US + round(seconds * 1_000_000)


def test_a_cookie_is_read_by_each_node_with_the_same_tokens() -> None:
    one, other = _token("one"), _token("other")
    cookie = Cookies([one, other], "s").make(other, NOW_US)
    assert Cookies([other, one], "s").read(cookie, _later(5)) == other
    assert Cookies([one, other], "t").read(cookie, _later(5)) is None
    assert Cookies([one], "s").read(cookie, _later(5)) is None
    assert Cookies([], "s").read(cookie, _later(5)) is None


@pytest.mark.parametrize("place", range(0, 92, 7))
def test_a_changed_cookie_is_nobodys(place: int) -> None:
    token = _token("one")
    mine = Cookies([token], "s")
    cookie = mine.make(token, NOW_US)
    changed = cookie[:place] + ("1" if cookie[place] == "0" else "0") + cookie[place + 1 :]
    assert mine.read(changed, NOW_US) is None


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b.c", "\udc80.1.2", "é", "." * 5000, "1" * 5000]
)
def test_what_is_no_cookie_is_nobodys(text: str) -> None:
    assert Cookies([_token("one")], "s").read(text, NOW_US) is None


def test_a_session_ends_after_its_time_or_with_its_token() -> None:
    lasting = _token("one")
    short = _token("two", datetime.fromtimestamp(NOW_US / 1e6 + 100, UTC))
    mine = Cookies([lasting, short], "s")
    cookie = mine.make(lasting, NOW_US)
    assert mine.read(cookie, _later(cookies.LIFE_S - 1)) == lasting
    assert mine.read(cookie, _later(cookies.LIFE_S)) is None
    assert mine.read(cookie, _later(-61)) is None
    cookie = mine.make(short, NOW_US)
    assert mine.read(cookie, _later(99)) == short
    assert mine.read(cookie, _later(100)) is None
    assert cookies.life_s(short, NOW_US) == 100
    assert cookies.life_s(short, _later(1000)) == 0
    assert cookies.life_s(lasting, NOW_US) == cookies.LIFE_S


def test_the_csrf_token_is_of_one_cookie() -> None:
    token = _token("one")
    mine = Cookies([token], "s")
    first, second = mine.make(token, NOW_US), mine.make(token, _later(1))
    assert mine.csrf(token, first) == Cookies([token], "s").csrf(token, first)
    assert mine.csrf(token, first) != mine.csrf(token, second)
    assert mine.csrf(token, first) not in first
