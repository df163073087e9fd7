"""The table of roles, and whom wrong tokens hold back."""

import hashlib
from datetime import UTC, datetime
from typing import cast, get_args

import pytest
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import access, route_roles
from duly.nodes.api.access import Access, Caller
from duly.nodes.api.app import build_app
from duly.nodes.api.problems import Problem
from duly.nodes.api.route_roles import ROUTES
from duly.nodes.connections import Door
from duly.nodes.regions.directory import Regions
from duly.nodes.settings import Role, Settings, Token
from duly.storage.database import Database


class FakeClock:
    """Both clocks of a node, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def now_us(self) -> int:
        return round(self.now_s * 1e6)


class Parts:
    """What making the application asks of a context."""

    api_db = clock = None


def test_the_table_names_each_route_and_no_other() -> None:
    app = build_app([cast("Context", Parts())], Settings(), Door(1, 1.0), Regions(None, ()))
    routes = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None
    }
    assert routes == ROUTES.keys()


def test_only_health_is_open_and_no_change_is_for_readers() -> None:
    opened = {route for route, role in ROUTES.items() if role is None}
    page = {("GET", path) for path in ("/admin", "/admin/{view}", "/admin/static/{file}")}
    others = {("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/v1/session")}
    assert opened == page | others
    for (method, path), role in ROUTES.items():
        if path != "/v1/session":
            assert method == "GET" or role in ("submit", "admin"), path


def test_a_route_without_a_role_is_not_served() -> None:
    async def handler(_: web.Request) -> web.Response:
        raise AssertionError

    app = web.Application()
    app.router.add_get("/v1/tasks", handler, allow_head=False)
    route_roles.check_routes(app)
    app.router.add_post("/v1/new", handler)
    with pytest.raises(LookupError, match="/v1/new"):
        route_roles.check_routes(app)


def test_each_role_may_do_what_those_before_it_may() -> None:
    roles: tuple[Role, ...] = get_args(Role)
    assert roles == ("read", "payload-view", "submit", "admin")
    callers = [Caller("x", role) for role in roles]
    for rank, who in enumerate(callers):
        assert [needed for needed in roles if who.may(needed)] == list(roles[: rank + 1])
    assert not any(Caller(None, None).may(needed) for needed in roles)


class Gate:
    """Asks `Access` as the application does, from any address."""

    def __init__(self, *secrets: str) -> None:
        self.clock = FakeClock()
        tokens = [Token(s, "read", hashlib.sha256(s.encode()).hexdigest()) for s in secrets]
        self._access = Access(tokens, 0.0, 1, self.clock, cast("Database", None))

    def until(self, secret: str, expires_at: datetime | None) -> datetime | None:
        """Until when somebody is known to be let in, with a token that expires then."""
        digest = hashlib.sha256(secret.encode()).hexdigest()
        tokens = [Token(secret, "read", digest, expires_at)]
        brief = Access(tokens, 0.0, 1, self.clock, cast("Database", None))
        return brief.admit(f"Bearer {secret}", "10.0.0.1", "read").expires_at

    def knock(self, secret: str, address: str) -> int:
        """The status that the request gets; 200 if it is let in."""
        try:
            self._access.admit(f"Bearer {secret}", address, "read")
        except Problem as problem:
            return problem.status
        return 200

    def guess_until_held(self, address: str) -> int:
        """How many wrong tokens are looked at."""
        for count in range(100):
            if self.knock(f"wrong {count}", address) == 429:
                return count
        raise AssertionError("never held back")


def test_who_is_let_in_is_known_with_the_end_of_the_token() -> None:
    ends = datetime(2040, 1, 1, tzinfo=UTC)
    assert Gate().until("brief", ends) == ends
    assert Gate().until("lasting", None) is None


def test_wrong_tokens_hold_back_their_address_alone() -> None:
    gate = Gate("right")
    assert gate.guess_until_held("10.0.0.1") == access.FAILURES_MAX
    assert gate.knock("right", "10.0.0.1") == 429  # not looked at: a guesser learns nothing
    assert gate.knock("right", "10.0.0.2") == 200
    gate.clock.now_s += 1 / access.FAILURES_PER_S
    assert gate.knock("wrong", "10.0.0.1") == 401
    assert gate.knock("wrong", "10.0.0.1") == 429


def test_a_token_that_was_right_there_before_is_let_in_still() -> None:
    gate = Gate("one", "two")
    assert gate.knock("one", "10.0.0.9") == 200
    gate.guess_until_held("10.0.0.9")
    assert gate.knock("one", "10.0.0.9") == 200
    assert gate.knock("two", "10.0.0.9") == 429


def test_an_ipv6_network_counts_as_one_address() -> None:
    gate = Gate("right")
    gate.guess_until_held("2001:db8:1:2::1")
    assert gate.knock("wrong", "2001:db8:1:2:ffff::5") == 429
    assert gate.knock("wrong", "2001:db8:1:3::1") == 401
    gate.guess_until_held("::ffff:10.0.0.7")
    assert gate.knock("wrong", "10.0.0.7") == 429
    assert gate.knock("wrong", "::ffff:10.0.0.8") == 401


def test_the_log_tells_once_who_is_held_back(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate("right")
    gate.guess_until_held("10.0.0.1")
    for _ in range(5):
        gate.knock("wrong", "10.0.0.1")
    assert [r.getMessage() for r in caplog.records] == [
        "too many wrong tokens from 10.0.0.1: it has to wait"
    ]
