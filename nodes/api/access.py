"""Who sends a request, and whether that is enough for its route (`route_roles`).

A request shows its token as `Authorization: Bearer`. Only hashes are known here; they are compared in
constant time, all of them. Too many wrong tokens from one address are answered 429 unseen, but for
tokens that were right from that address before: behind a proxy one guesser locks nobody out. A browser that has
signed in sends a cookie instead (`cookies`), and with each change the session's CSRF token.
"""

import hashlib
import hmac
import ipaddress
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Final, NamedTuple, get_args

import msgspec
from aiohttp import web

from duly.nodes.api import cookies, own_machine, route_roles
from duly.nodes.api.cookies import Cookies
from duly.nodes.api.problems import Problem, too_many
from duly.nodes.api.throttle import KEYS_MAX, Buckets
from duly.nodes.regions.messages import FORWARDED_BY, FORWARDED_FOR, FORWARDED_ROLE
from duly.nodes.settings import Role, Token
from duly.storage import secrets
from duly.storage.audit import Note
from duly.storage.database import Database
from duly.wheel.clock import Clock

log = logging.getLogger("duly.api")

FAILURES_MAX: Final = 30
"""Wrong tokens that one address may send at once."""

FAILURES_PER_S: Final = 0.5
"""How many more it may send after that."""

CSRF_HEADER: Final = "X-CSRF-Token"
"""What a change with a cookie has to show besides."""

_NAME_MAX: Final = 100
_NOT_NAMES: Final = re.compile("[^A-Za-z0-9_.@-]")  # of regions and of tokens

_RANKS: Final[Mapping[Role, int]] = {role: rank for rank, role in enumerate(get_args(Role))}


class Behalf(NamedTuple):
    """Whose request another region forwards."""

    region: str
    who: str | None


class Caller(NamedTuple):
    """Who sent a request: the name and role of its token."""

    name: str | None
    role: Role | None
    """None: a stranger, who sees what is open to everybody."""
    expires_at: datetime | None = None
    """When the token expires, on PostgreSQL's clock; None: never."""
    behalf: Behalf | None = None
    """Of a request that another region forwards; the role is then the lower one of both."""

    def may(self, needed: Role) -> bool:
        """Whether this is the role `needed` or one above it."""
        return self.role is not None and _RANKS[self.role] >= _RANKS[needed]


_ANYBODY: Final = Caller(None, "admin")
"""Whoever comes to a node without tokens, which only its own machine can reach."""

_STRANGER: Final = Caller(None, None)


_caller: Final[ContextVar[Caller]] = ContextVar("caller")  # each request has a context of its own


def caller() -> Caller:
    """Who sent the request that is being answered."""
    return _caller.get()


def note(action: str, details: Mapping[str, object] | None = None) -> Note:
    """What the audit log is to hold of a change that this request makes."""
    who = caller()
    assert who.role is not None
    if who.behalf is not None:
        details = {**(details or {}), "forwarded_by": who.behalf.region, "for": who.behalf.who}
    text = None if details is None else msgspec.json.encode(details).decode()
    return Note(who.name, who.role, action, text)


class Access:
    """Lets requests in, or not. Without tokens (so on loopback only) everybody is let in."""

    def __init__(
        self, tokens: Sequence[Token], rate: float, burst: int, clock: Clock, db: Database
    ) -> None:
        """`rate`, `burst`: requests a second, and at once, that each token may send; 0: any."""
        self._tokens = [(token.sha256.encode(), token) for token in tokens]
        self._clock = clock
        self._db = db
        self._cookies: Cookies | None = None
        self._rates = Buckets(rate, burst) if rate else None
        self._failures = Buckets(FAILURES_PER_S, FAILURES_MAX)
        self._welcome: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def has_tokens(self) -> bool:
        """Whether anybody has to show a token at all."""
        return bool(self._tokens)

    async def check(self, request: web.Request) -> None:
        """Raises `Problem` 401, 403 or 429; goes before the handler has seen anything."""
        if not self._tokens:
            own_machine.check(request)
            _caller.set(_on_behalf(request, _ANYBODY))
            return
        needed, shown = route_roles.needed(request), request.headers.get("Authorization")
        if shown is None and cookies.NAME in request.cookies:
            _caller.set(await self._by_cookie(request, needed))
        else:
            remote = request.remote or ""
            who = (
                self.visitor(shown, remote) if needed is None else self.admit(shown, remote, needed)
            )
            _caller.set(_on_behalf(request, who))

    def admit(self, shown: str | None, remote: str, needed: Role) -> Caller:
        """Who shows this `Authorization` from this address. Raises `Problem` 401, 403 or 429."""
        return self._let_in(self.identify(_secret(shown), remote), needed)

    def visitor(self, shown: str | None, remote: str) -> Caller:
        """Who comes to an open route: a stranger, unless the token is right."""
        if shown is None:
            return _STRANGER
        try:
            token = self.identify(_secret(shown), remote)
        except Problem:
            return _STRANGER
        return Caller(token.name, token.role)

    async def cookies(self) -> Cookies:
        """What makes and reads cookies. Raises StoreUnavailableError before it is first known."""
        if self._cookies is None:
            secret = await secrets.get(self._db, "session")
            self._cookies = Cookies([token for _, token in self._tokens], secret)
        return self._cookies

    async def csrf(self, request: web.Request) -> str | None:
        """The CSRF token of the request's cookie; None if it came by another way than a cookie."""
        cookie = request.cookies.get(cookies.NAME)
        if cookie is None or not self._tokens or "Authorization" in request.headers:
            return None
        made = await self.cookies()
        token = made.read(cookie, self._clock.now_us())
        return None if token is None else made.csrf(token, cookie)

    async def _by_cookie(self, request: web.Request, needed: Role | None) -> Caller:
        cookie = request.cookies[cookies.NAME]
        if needed is None and self._cookies is None:
            return _STRANGER  # what is open to everybody does not wait for the store
        made = await self.cookies()
        token = made.read(cookie, self._clock.now_us())
        if needed is None:
            return _STRANGER if token is None else Caller(token.name, token.role)
        if token is None:
            raise _unauthorized("the session has ended: sign in")
        if request.method not in ("GET", "HEAD"):
            sent = request.headers.get(CSRF_HEADER, "").encode(errors="surrogateescape")
            if not hmac.compare_digest(sent, made.csrf(token, cookie).encode()):
                raise Problem(403, "Forbidden", f"a change needs the session's {CSRF_HEADER}")
        return self._let_in(token, needed)

    def _let_in(self, token: Token, needed: Role) -> Caller:
        if self._rates is not None:
            self._hold_rate(self._rates, token)
        who = Caller(token.name, token.role, token.expires_at)
        if not who.may(needed):
            detail = f"this needs the role {needed}; the token has {token.role}"
            raise Problem(403, "Forbidden", detail)
        return who

    def identify(self, secret: str, remote: str) -> Token:
        """Whose secret this is. Raises `Problem` 401 or 429."""
        # Bytes that are not UTF-8 come as surrogates, and go back to what they were.
        digest = hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest().encode()
        now_s = self._clock.monotonic()
        wait_s = self._failures.wait_s(_address(remote), now_s) if len(self._failures) else 0.0
        found = None
        for known, token in self._tokens:  # all of them, so that the time taken tells nothing
            may_be = not wait_s or (remote, token.sha256) in self._welcome
            if hmac.compare_digest(digest, known) and may_be:
                found = token
        if found is None:
            raise self._refused(remote, wait_s, now_s)
        if cookies.has_expired(found, self._clock.now_us()):
            raise _unauthorized("the token has expired")
        self._remember(remote, found)
        return found

    def _refused(self, remote: str, wait_s: float, now_s: float) -> Problem:
        if wait_s:
            return too_many("wrong tokens from this address", wait_s)
        address = _address(remote)
        self._failures.take(address, now_s)
        if self._failures.wait_s(address, now_s):
            log.warning("too many wrong tokens from %s: it has to wait", address)
        return _unauthorized("the token is not known")

    def _remember(self, remote: str, token: Token) -> None:
        pair = (remote, token.sha256)
        if pair not in self._welcome:
            self._welcome[pair] = None
            if len(self._welcome) > KEYS_MAX:
                self._welcome.popitem(last=False)

    def _hold_rate(self, rates: Buckets, token: Token) -> None:
        now_s = self._clock.monotonic()
        if wait_s := rates.wait_s(token.sha256, now_s):
            raise too_many("requests with this token", wait_s)
        rates.take(token.sha256, now_s)


def _on_behalf(request: web.Request, who: Caller) -> Caller:
    """Who a forwarded request is from. Nobody can do more by saying so: the lower role counts."""
    region = request.headers.get(FORWARDED_BY)
    if region is None:
        return who
    roles = [role for role in get_args(Role) if role == request.headers.get(FORWARDED_ROLE)]
    lower: Role | None = roles[0] if roles and who.may(roles[0]) else who.role
    name = request.headers.get(FORWARDED_FOR, "")
    behalf = Behalf(
        _NOT_NAMES.sub("_", region)[:_NAME_MAX], _NOT_NAMES.sub("_", name)[:_NAME_MAX] or None
    )
    return who._replace(role=lower, behalf=behalf)


def _secret(shown: str | None) -> str:
    """The token in an `Authorization`. Raises `Problem` 401 if there is none."""
    scheme, _, secret = (shown or "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise _unauthorized("send Authorization: Bearer with a token")
    return secret


def _address(remote: str) -> str:
    """Whom to hold back: an IPv4 address, or an IPv6 network of the size that one customer has."""
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if address.version == 4:
        return remote
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _unauthorized(detail: str) -> Problem:
    headers = {"WWW-Authenticate": 'Bearer realm="duly"'}
    return Problem(401, "Unauthorized", detail, headers=headers)
