"""duly token new."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

from duly.nodes.settings import load

Duly = Callable[..., Awaitable[Any]]


async def test_a_new_token_is_let_in_by_its_setting(duly: Duly) -> None:
    made = await duly("token", "new", "shop", "submit", "--expires", "2027-01-31T00:00Z")
    assert made.code == 0
    token, setting = (line.split()[1] for line in made.out.splitlines())
    assert re.fullmatch(r"duly_[A-Za-z0-9_-]{43}", token)
    (known,) = load({"tokens": setting}, {}, None).tokens
    assert (known.name, known.role) == ("shop", "submit")
    assert known.sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert known.expires_at is not None
    assert token not in made.err
    other = await duly("token", "new", "shop", "submit")
    assert token not in other.out
    assert load({"tokens": other.out.split()[3]}, {}, None).tokens[0].expires_at is None


async def test_what_would_not_be_let_in_is_refused(duly: Duly) -> None:
    for argv in (
        ("a b", "read"), ("shop", "root"), ("shop", "read", "--expires", "tomorrow"),
        ("shop", "read", "--expires", "2027-01-31T00:00Z,x"), ("shop,x", "read"),
    ):  # fmt: skip
        made = await duly("token", "new", *argv)
        assert (made.code, made.out) == (2, ""), argv
        assert made.err
