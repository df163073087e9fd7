"""Signing in with a token: the cookie, what it lets through, and when it ends."""

import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from http.cookies import SimpleCookie

import aiohttp
import pytest
from node_rig import Answer, RunningNode, running_node

from duly.nodes.api import cookies
from duly.nodes.api.access import FAILURES_MAX
from duly.nodes.setting_values import Role
from duly.nodes.settings import Token
from duly.wheel.durations import from_us

FAR = "2040-01-01T00:00:00Z"


def _token(role: Role, secret: str) -> Token:
    return Token(role, role, hashlib.sha256(secret.encode()).hexdigest())


TOKENS = (_token("read", "r-secret"), _token("submit", "s-secret"), _token("admin", "a-secret"))


@pytest.fixture
async def guarded(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node that asks for a token; its client has the one for `submit`."""
    async with running_node(fresh_database, redis_url, tokens=TOKENS, token="s-secret") as running:
        yield running


class Browser:
    """Sends no token, but the cookie that it was given."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookie: str | None = None
        self.csrf: str | None = None

    async def call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One request; the CSRF token goes along unless `headers` has one."""
        own = {} if self.cookie is None else {"Cookie": f"{cookies.NAME}={self.cookie}"}
        if self.csrf is not None:
            own["X-CSRF-Token"] = self.csrf
        async with (
            aiohttp.ClientSession(self.url, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.request(method, path, json=body, headers={**own, **(headers or {})}) as answer,
        ):
            is_json = answer.content_type.endswith("json")
            value = await answer.json(content_type=None) if is_json else await answer.text()
            return Answer(answer.status, value, answer.headers.copy())

    async def sign_in(self, secret: str) -> Answer:
        """Sign in, and keep what that gave."""
        answer = await self.call("POST", "/v1/session", {"token": secret})
        if answer.status == 200:
            jar = SimpleCookie(answer.headers["Set-Cookie"])
            self.cookie, self.csrf = jar[cookies.NAME].value, answer.body["csrf"]
        return answer


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(guarded: RunningNode) -> None:
    browser = Browser(guarded.url)
    answer = await browser.sign_in("a-secret")
    assert answer.status == 200
    assert (answer.body["name"], answer.body["role"]) == ("admin", "admin")
    morsel = SimpleCookie(answer.headers["Set-Cookie"])[cookies.NAME]
    assert morsel["httponly"]
    assert morsel["samesite"] == "Strict"
    assert morsel["path"] == "/"
    assert morsel["max-age"] == str(cookies.LIFE_S)
    assert not morsel["secure"]  # over plain HTTP a browser would not send it
    assert "a-secret" not in morsel.value
    behind_tls = {"X-Forwarded-Proto": "https"}
    answer = await browser.call("POST", "/v1/session", {"token": "a-secret"}, behind_tls)
    assert SimpleCookie(answer.headers["Set-Cookie"])[cookies.NAME]["secure"]


async def test_a_signed_in_browser_may_look_and_change(guarded: RunningNode) -> None:
    browser = Browser(guarded.url)
    assert (await browser.call("GET", "/v1/session")).status == 401
    signed_in = await browser.sign_in("s-secret")
    answer = await browser.call("GET", "/v1/session")
    assert (answer.status, answer.body) == (200, signed_in.body)
    task = await browser.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR})
    assert task.status == 201
    assert (await browser.call("GET", "/v1/tasks")).body["items"] == [task.body]
    assert (await browser.call("GET", "/v1/audit")).status == 403
    await browser.sign_in("a-secret")
    answer = await browser.call("GET", "/v1/audit")  # noted under the name of the token
    assert answer.status == 200


async def test_a_change_needs_the_csrf_token_of_this_session(guarded: RunningNode) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    cancel = f"/v1/tasks/{task.id}/cancel"
    browser, other = Browser(guarded.url), Browser(guarded.url)
    await browser.sign_in("s-secret")
    await other.sign_in("a-secret")
    assert other.csrf is not None
    right, browser.csrf = browser.csrf, None
    assert right is not None
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": other.csrf}, {"X-CSRF-Token": "x"}):
        for method, path in (("POST", cancel), ("DELETE", "/v1/session")):
            answer = await browser.call(method, path, None, wrong)
            assert (answer.status, "X-CSRF-Token" in answer.body["detail"]) == (403, True)
    assert (await guarded.client.get(task.id)).status == "pending"
    answer = await browser.call("POST", cancel, None, {"X-CSRF-Token": right})
    assert (answer.status, answer.body["status"]) == (200, "cancelled")


async def test_a_reader_who_signs_in_may_not_change(guarded: RunningNode) -> None:
    task = await guarded.client.submit("a", payload="hush", run_at=FAR)
    browser = Browser(guarded.url)
    await browser.sign_in("r-secret")
    answer = await browser.call("GET", f"/v1/tasks/{task.id}")
    assert (answer.status, answer.body["payload"]) == (200, None)
    assert (await browser.call("POST", f"/v1/tasks/{task.id}/cancel")).status == 403
    assert (await guarded.client.get(task.id)).status == "pending"


async def test_signing_out_takes_the_cookie_away(guarded: RunningNode) -> None:
    browser = Browser(guarded.url)
    await browser.sign_in("r-secret")
    answer = await browser.call("DELETE", "/v1/session")
    morsel = SimpleCookie(answer.headers["Set-Cookie"])[cookies.NAME]
    assert (answer.status, morsel.value, morsel["max-age"]) == (204, "", "0")
    browser.cookie = None
    assert (await browser.call("GET", "/v1/session")).status == 401


async def test_each_node_accepts_the_cookie_of_another(
    guarded: RunningNode, fresh_database: str, redis_url: str
) -> None:
    browser = Browser(guarded.url)
    await browser.sign_in("s-secret")
    async with running_node(
        fresh_database, redis_url, tokens=TOKENS[1:], token="s-secret", owns_slots=False
    ) as second:
        browser.url = second.url
        answer = await browser.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR})
        assert answer.status == 201
        reader = Browser(guarded.url)
        await reader.sign_in("r-secret")
        reader.url = second.url  # which does not know this token
        assert (await reader.call("GET", "/v1/tasks")).status == 401


async def test_a_session_ends_with_its_token(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url) as node:
        now = from_us(node.context.clock.now_us())
    old, new = (
        Token("a", "admin", _token("admin", secret).sha256, now + timedelta(days=days))
        for secret, days in (("old", -1), ("new", 0.25))
    )
    async with running_node(fresh_database, redis_url, tokens=(old, new), token="new") as node:
        browser = Browser(node.url)
        answer = await browser.sign_in("old")
        assert (answer.status, answer.body["detail"]) == (401, "the token has expired")
        answer = await browser.sign_in("new")
        left = SimpleCookie(answer.headers["Set-Cookie"])[cookies.NAME]["max-age"]
        assert cookies.LIFE_S // 4 < int(left) <= cookies.LIFE_S // 2


async def test_guesses_at_the_sign_in_are_throttled(guarded: RunningNode) -> None:
    browser = Browser(guarded.url)
    counts = {401: 0, 429: 0}
    while not counts[429]:
        answer = await browser.sign_in(f"guess {counts[401]}")
        counts[answer.status] += 1
        assert counts[401] < FAILURES_MAX * 10
    assert counts[401] >= FAILURES_MAX
    assert int(answer.headers["Retry-After"]) >= 1


async def test_what_is_no_sign_in_is_refused(guarded: RunningNode) -> None:
    browser = Browser(guarded.url)
    for body, status in (({}, 422), ({"token": 1}, 422), ({"token": "x", "a": 1}, 422), ({"token": ""}, 401),
                         ({"token": "x" * 20_000}, 413)):  # fmt: skip
        assert (await browser.call("POST", "/v1/session", body)).status == status
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    answer = await browser.call("POST", "/v1/session", {"token": "a-secret"}, elsewhere)
    assert answer.status == 403
    browser.cookie = "nonsense"
    assert (await browser.call("GET", "/v1/tasks")).status == 401
    assert (await browser.call("GET", "/healthz")).status == 200
    assert (await browser.sign_in("r-secret")).status == 200  # an old cookie is not in the way


async def test_a_node_without_tokens_asks_for_no_session(node: RunningNode) -> None:
    everybody = {"name": None, "role": "admin", "csrf": None}
    browser = Browser(node.url)
    assert (await browser.call("GET", "/v1/session")).body == everybody
    assert (await browser.call("POST", "/v1/session", {"token": "any"})).body == everybody
    browser.cookie = "left over"
    assert (await browser.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR})).status == 201
