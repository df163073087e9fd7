"""Signed session cookies. A node keeps nothing of a session, so each node of the cluster accepts it.

A cookie names its token by a hash, says when it was made, and is signed. The key is derived from the
cluster's secret and the token's own hash: a session ends when its token is no longer in the settings,
and who knows the hashes alone cannot make one.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from duly.nodes.settings import Token
from duly.wheel.durations import to_us

NAME: Final = "duly_session"
"""What the cookie is called."""

LIFE_S: Final = 12 * 3_600
"""How long a session lasts at most; it ends with its token if that is earlier."""

_EARLY_S: Final = 60
"""So far in the future a cookie may seem to have been made: nodes' clocks differ a little."""


class Cookies:
    """Makes and reads the cookies of these tokens."""

    def __init__(self, tokens: Sequence[Token], secret: str) -> None:
        """`secret`: what the nodes of one cluster share, and nobody else knows."""
        self._keys = [
            (token, hmac.digest(secret.encode(), token.sha256.encode(), "sha256"))
            for token in tokens
        ]

    def make(self, token: Token, now_us: int) -> str:
        """A cookie for one of the tokens."""
        key = next(key for known, key in self._keys if known is token)
        said = f"{_name(key)}.{now_us // 1_000_000}"
        return f"{said}.{_sign(key, 'session', said)}"

    def read(self, cookie: str, now_us: int) -> Token | None:
        """Whose cookie it is; None if we did not make it, or it or its token has expired."""
        said, _, signature = cookie.rpartition(".")
        name, _, made = said.partition(".")
        found = None
        for token, key in self._keys:
            if _same(name, _name(key)) and _same(signature, _sign(key, "session", said)):
                found = token
        # Only now: what we have signed is a number.
        if found is None or not -_EARLY_S <= now_us // 1_000_000 - int(made) < LIFE_S:
            return None
        return None if has_expired(found, now_us) else found

    def csrf(self, token: Token, cookie: str) -> str:
        """What a change with this cookie has to show besides: pages of other sites cannot read it."""
        key = next(key for known, key in self._keys if known is token)
        return _sign(key, "csrf", cookie)


def life_s(token: Token, now_us: int) -> int:
    """Seconds that a session lasts which is made now."""
    if token.expires_at is None:
        return LIFE_S
    return min(LIFE_S, max(0, (to_us(token.expires_at) - now_us) // 1_000_000))


def has_expired(token: Token, now_us: int) -> bool:
    """Whether the token is refused by now."""
    return token.expires_at is not None and now_us >= to_us(token.expires_at)


def _name(key: bytes) -> str:
    return _sign(key, "name", "")[:16]


def _sign(key: bytes, purpose: str, text: str) -> str:
    said = f"{purpose}\n{text}".encode(errors="surrogateescape")
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="surrogateescape"), other.encode())
