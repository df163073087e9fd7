"""Who may do what: tokens and roles, what each sees, and how often it may ask."""

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from node_rig import RunningNode, running_node
from store_rig import query
from waiting import wait_for
from worker_rig import running

from duly.nodes.api.access import FAILURES_MAX
from duly.nodes.api.route_roles import ROUTES
from duly.nodes.client import Client
from duly.nodes.setting_values import Role
from duly.nodes.settings import Token
from duly.nodes.worker import Context, Worker
from duly.wheel.durations import from_us

FAR = "2040-01-01T00:00:00Z"


def _token(role: Role, secret: str) -> Token:
    return Token(role, role, hashlib.sha256(secret.encode()).hexdigest())


def _showing(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
async def guarded(fresh_database: str, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node that asks for a token; its client has the one for `submit`."""
    tokens = (
        _token("read", "r-secret"), _token("payload-view", "p-secret"),
        _token("submit", "s-secret"), _token("admin", "é-secret"),
    )  # fmt: skip
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
        shown = {"Authorization": value}
        assert (await guarded.call("GET", "/healthz", None, shown)).status == 200
        await guarded.ready(shown)
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
        ("POST", path + "/pause", None), ("POST", path + "/resume", None),
        ("POST", path + "/run-now", None),
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


async def test_payloads_and_results_are_for_those_who_may_see_them(guarded: RunningNode) -> None:
    task = await guarded.running_task("a", payload={"word": "hush"})
    done = {"token": task.version, "outcome": "completed", "result": {"answer": "hush"}}
    assert (await guarded.call("POST", f"/v1/tasks/{task.id}/report", done)).status == 200
    paths = {path: path.replace("{id}", str(task.id)) for method, path in ROUTES if method == "GET"}
    del paths["/v1/events"]  # which goes on, and holds neither
    del paths["/v1/bulk/{id}"]  # no task
    paths["/admin/static/{file}"] = "/admin/static/page.css"
    kept = {"type": "a", "name": "n", "delay": 3600, "payload": {"word": "hush"}}
    assert (await guarded.call("POST", "/v1/tasks", kept, _showing("s-secret"))).status == 201
    paths["/v1/names/{name}"] = "/v1/names/n"
    paths["/v1/queues/{queue}"] = "/v1/queues/default"
    paths["/v1/regions/{region}/outbox"] = "/v1/regions/eu/outbox"
    await query(
        guarded.context.db,
        "insert into forwarded (id, region, accepted_at, updated_at, body)"
        " values (gen_random_uuid(), 'eu', $1, $1, $2)",
        task.created_at, b'{"type": "a", "payload": {"word": "hush"}}',
    )  # fmt: skip
    paths["/v1/schedules/preview"] += "?every=60"
    for secret, sees in (("r", False), ("p", True), ("s", True), ("é", True)):
        answers = {
            route: await guarded.call("GET", path, None, _showing(f"{secret}-secret"))
            for route, path in paths.items()
        }
        for route, answer in answers.items():
            is_barred = ROUTES["GET", route] == "admin" and secret != "é"
            assert answer.status == (403 if is_barred else 200), (secret, route)
            assert sees or "hush" not in str(answer.body)
        one, (*_, listed) = answers["/v1/tasks/{id}"].body, answers["/v1/tasks"].body["items"]
        (run,) = answers["/v1/tasks/{id}/runs"].body["items"]
        assert one == listed
        (forwarded,) = answers["/v1/regions/{region}/outbox"].body["items"]
        assert forwarded["payload"] == one["payload"]
        assert one["payload"] == ({"word": "hush"} if sees else None)
        assert one["result"] == run["result"] == ({"answer": "hush"} if sees else None)
        assert one.get("hidden") == (None if sees else ["payload", "result"])
        assert run.get("hidden") == (None if sees else ["result"])


async def test_readiness_tells_a_stranger_no_details(guarded: RunningNode) -> None:
    for shown in ("", "Bearer wrong"):
        answer = await guarded.ready({"Authorization": shown})
        assert answer.body["node"] is None
        for part in answer.body["parts"].values():
            assert part == {"ok": True, "detail": None, "failing": {}}
    answer = await guarded.ready(_showing("r-secret"))
    assert answer.body["node"] == guarded.context.node_id
    assert answer.body["parts"]["slots"]["detail"] == "owns 256"


async def test_an_expired_token_is_refused(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url) as node:
        now = from_us(node.context.clock.now_us())
    old, new = (
        Token("a", "admin", _token("admin", secret).sha256, now + timedelta(days=days))
        for secret, days in (("old", -1), ("new", 1))
    )
    async with running_node(fresh_database, redis_url, tokens=(old, new), token="new") as node:
        await node.client.submit("a", run_at=FAR)
        answer = await node.call("GET", "/v1/tasks", None, _showing("old"))
        assert (answer.status, answer.body["detail"]) == (401, "the token has expired")


async def test_wrong_tokens_are_soon_not_looked_at(guarded: RunningNode) -> None:
    await guarded.client.submit("a", run_at=FAR)
    counts = {401: 0, 429: 0}
    while not counts[429]:
        answer = await guarded.call("GET", "/v1/tasks", None, _showing("guess"))
        counts[answer.status] += 1
        assert counts[401] < FAILURES_MAX * 10
    assert counts[401] >= FAILURES_MAX
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert 1 <= int(answer.headers["Retry-After"]) <= 2
    await guarded.client.submit("a", run_at=FAR)  # it was right from here before


async def test_a_token_may_be_held_to_a_rate(fresh_database: str, redis_url: str) -> None:
    tokens = (_token("submit", "fast"), _token("read", "other"))
    async with running_node(
        fresh_database, redis_url, tokens=tokens, token="fast", token_rate=1.0, token_burst=5
    ) as node:
        counts = {200: 0, 429: 0}
        while not counts[429]:
            answer = await node.call("GET", "/v1/tasks")
            counts[answer.status] += 1
            assert counts[200] < 100
        assert counts[200] >= 5
        assert answer.headers["Retry-After"] == "1"
        assert (await node.call("GET", "/v1/tasks", None, _showing("other"))).status == 200
        await node.ready()  # open routes are not counted

        async def let_in_again() -> bool:
            return (await node.call("GET", "/v1/tasks")).status == 200

        await wait_for(let_in_again, 30, "the bucket has filled up a little")


async def test_every_answer_has_security_headers(guarded: RunningNode) -> None:
    for path, status in (
        ("/healthz", 200), ("/v1/tasks", 200), ("/metrics", 200), ("/nope", 404), ("/v1/tasks/x", 422),
    ):  # fmt: skip
        answer = await guarded.call("GET", path)
        assert answer.status == status
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Server"] == "duly"
    answer = await guarded.call("GET", "/v1/tasks", None, _showing("wrong"))
    assert (answer.status, answer.headers["X-Frame-Options"]) == (401, "DENY")


async def test_a_node_without_tokens_serves_no_page_of_another_site(node: RunningNode) -> None:
    task = await node.client.submit("a", run_at=FAR)
    cancel = f"/v1/tasks/{task.id}/cancel"
    for method, path, headers in (
        ("GET", "/v1/tasks", {"Host": "evil.example"}),
        ("POST", cancel, {"Host": "127.0.0.1.evil.example:8080"}),
        ("POST", cancel, {"Sec-Fetch-Site": "cross-site"}),
    ):
        answer = await node.call(method, path, None, headers)
        assert (answer.status, answer.body["title"]) == (403, "Forbidden")
    assert (await node.client.get(task.id)).status == "pending"
    assert (await node.call("POST", cancel, None, {"Host": "localhost"})).status == 200


async def test_a_node_with_tokens_may_have_any_name(guarded: RunningNode) -> None:
    headers = {"Host": "duly.example", "Sec-Fetch-Site": "cross-site"}
    answer = await guarded.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR}, headers)
    assert answer.status == 201


async def test_a_worker_shows_its_token_to_start(guarded: RunningNode, redis_url: str) -> None:
    ran: list[str] = []
    workers = []
    for worker_id, secret in (("knows", "s-secret"), ("reads", "r-secret")):
        worker = Worker(redis_url, id=worker_id, queues=[worker_id], api=guarded.url, token=secret)

        @worker.task("t")
        async def handle(ctx: Context) -> None:
            ran.append(ctx.queue)

        workers.append(worker)
    async with running(workers[0]), running(workers[1]):
        tasks = {
            queue: await guarded.client.submit("t", queue=queue, on_lost="fail", max_retries=0)
            for queue in ("reads", "knows")
        }

        async def completed() -> bool:
            return (await guarded.client.get(tasks["knows"].id)).status == "completed"

        await wait_for(completed, 30, "the start of one is confirmed")
    assert ran == ["knows"]
    assert (await guarded.client.get(tasks["reads"].id)).status != "completed"


async def test_the_text_of_a_progress_is_for_those_who_may_see_payloads(
    guarded: RunningNode, redis_url: str
) -> None:
    worker, go_on = Worker(redis_url, id="w"), asyncio.Event()

    @worker.task("t")
    async def held(ctx: Context) -> None:
        ctx.progress(0.5, text="secret")
        await go_on.wait()

    async with running(worker):
        task = await guarded.client.submit("t")
        texts: dict[str, str | None] = {}

        async def told() -> bool:
            for secret in ("r-secret", "p-secret"):
                async with Client(guarded.url, secret) as client:
                    said = (await client.explain(task.id)).reasons[0]
                if said.get("progress") != 0.5:
                    return False
                texts[secret] = said["progress_text"]
            return True

        await wait_for(told, 60, "the progress")
        go_on.set()
    assert texts == {"r-secret": None, "p-secret": "secret"}
