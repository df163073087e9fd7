"""Who may do what: tokens and roles."""

import gzip
import hashlib
from collections.abc import AsyncIterator

import pytest
from node_rig import RunningNode, running_node

from duly.nodes.setting_values import Role
from duly.nodes.settings import Token

FAR = "2040-01-01T00:00:00Z"


def _token(role: Role, secret: str) -> Token:
    return Token(role, role, hashlib.sha256(secret.encode()).hexdigest())


@pytest.fixture
async def guarded(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node that asks for a token; its client has the one for `submit`."""
    tokens = (_token("read", "r-secret"), _token("submit", "s-secret"), _token("admin", "é-secret"))
    async with running_node(fresh_database, redis_url, tokens=tokens, token="s-secret") as running:
        yield running


async def test_without_a_known_token_nothing_but_health(guarded: RunningNode) -> None:
    for value in (
        "", "Bearer", "Bearer ", "Bearer wrong", "Basic s-secret", "s-secret",
        "Bearer " + hashlib.sha256(b"s-secret").hexdigest(), "Bearer s-secret x",
    ):  # fmt: skip
        for method, path, body in (
            ("GET", "/v1/tasks", None), ("POST", "/v1/tasks", {"type": "a"}),
            ("GET", "/openapi.json", None), ("GET", "/v1/nope", None),
            ("POST", "/v1/reports", {"reports": []}),
        ):  # fmt: skip
            answer = await guarded.call(method, path, body, {"Authorization": value})
            assert answer.status == 401, (value, path)
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="duly"'
            assert answer.headers["Content-Type"] == "application/problem+json"
        for path in ("/healthz", "/readyz"):
            assert (await guarded.call("GET", path, None, {"Authorization": value})).status == 200
    assert await guarded.count() == 0


async def test_read_may_look_and_not_touch(guarded: RunningNode) -> None:
    task = await guarded.client.submit("a", run_at=FAR)
    path = f"/v1/tasks/{task.id}"
    reader = {"Authorization": "Bearer r-secret"}
    for look in ("/v1/tasks", path, path + "/runs", "/openapi.json"):
        assert (await guarded.call("GET", look, None, reader)).status == 200, look
    for method, change, body in (
        ("POST", "/v1/tasks", {"type": "a"}), ("POST", "/v1/tasks/batch", {"tasks": []}),
        ("PATCH", path, {"priority": 1}), ("POST", path + "/cancel", None),
        ("POST", path + "/retry", None), ("POST", path + "/start", {}),
        ("POST", path + "/report", {}), ("POST", "/v1/reports", {"reports": []}),
    ):  # fmt: skip
        answer = await guarded.call(method, change, body, reader)
        assert answer.status == 403, change
        assert "submit" in answer.body["detail"]
    assert await guarded.client.get(task.id) == task
    assert await guarded.count() == 1


async def test_submit_and_admin_may_change(guarded: RunningNode) -> None:
    for value in ("Bearer s-secret", "bearer s-secret", "BEARER  s-secret", "Bearer é-secret"):
        body = {"type": "a", "run_at": FAR}
        answer = await guarded.call("POST", "/v1/tasks", body, {"Authorization": value})
        assert answer.status == 201, value


async def test_c49_a_compressed_body_is_not_unfolded_for_a_stranger(guarded: RunningNode) -> None:
    headers = {"Authorization": "Bearer wrong", "Content-Encoding": "gzip"}
    answer = await guarded.call("POST", "/v1/tasks", gzip.compress(b" " * (1 << 24)), headers)
    assert answer.status == 401
