"""/v1/queues: what is set of a queue holds on all nodes at once, and over restarts."""

import asyncio
import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from node_rig import RunningNode, running_node
from private_valkey import several
from waiting import wait_for
from worker_rig import running

from duly.nodes.settings import Role, Token
from duly.nodes.worker import Context, Worker
from duly.storage import keys
from duly.wheel.durations import parse_time

EMPTY = {
    "paused": False, "paused_by": None, "paused_at": None, "rate": None, "burst": None,
    "max_in_flight": None, "updated_at": None, "updated_by": None, "pending": 0, "running": 0,
    "backlog": 0, "workers": 0, "next_token_at": None, "exact": True,
}  # fmt: skip


def _token(name: str, role: Role) -> Token:
    return Token(name, role, hashlib.sha256(name.encode()).hexdigest())


async def put(node: RunningNode, queue: str, **body: object) -> Any:
    """Set something of a queue; the queue as it is answered."""
    answer = await node.call("PUT", f"/v1/queues/{queue}", body)
    assert answer.status == 200, answer
    return answer.body


async def get(node: RunningNode, queue: str) -> Any:
    answer = await node.call("GET", f"/v1/queues/{queue}")
    assert answer.status == 200, answer
    return answer.body


def counting_worker(redis_url: str, done: list[str], queues: list[str]) -> Worker:
    worker = Worker(redis_url, queues=queues, concurrency=20)

    @worker.task("t")
    async def note(ctx: Context, payload: object) -> None:
        done.append(str(ctx.id))

    return worker


async def test_a_queue_that_nobody_has_used_is_empty(node: RunningNode) -> None:
    assert await get(node, "new") == {"queue": "new", **EMPTY}
    answer = await node.call("GET", "/v1/queues")
    assert answer.body == {"items": [], "next_cursor": None}
    assert (await node.call("GET", "/v1/queues?cursor=")).fields == ["cursor"]


async def test_what_is_set_is_answered_and_noted(fresh_database: str, redis_url: str) -> None:
    tokens = (_token("ann", "admin"), _token("bo", "submit"))
    async with running_node(fresh_database, redis_url, tokens=tokens, token="ann") as node:
        first = await put(node, "q", rate=2.5, paused=True)
        now = parse_time(first["updated_at"])
        assert first | EMPTY == {"queue": "q", **EMPTY}
        assert (first["rate"], first["paused"], first["paused_by"]) == (2.5, True, "ann")
        assert first["updated_by"] == "ann"
        assert first["paused_at"] == first["updated_at"]
        second = await put(node, "q", burst=3, max_in_flight=9)
        assert second["rate"] == 2.5
        assert (second["burst"], second["max_in_flight"]) == (3, 9)
        assert parse_time(second["updated_at"]) >= now
        third = await put(node, "q", rate=None, burst=None, max_in_flight=None, paused=False)
        assert third | {"updated_at": None, "updated_by": None} == {"queue": "q", **EMPTY}
        entries = (await node.call("GET", "/v1/audit")).body["items"]
        assert [entry["details"] for entry in reversed(entries)] == [
            {"queue": "q", "rate": 2.5, "paused": True},
            {"queue": "q", "burst": 3, "max_in_flight": 9},
            {"queue": "q", "rate": None, "burst": None, "max_in_flight": None, "paused": False},
        ]
        assert {(entry["action"], entry["task_id"]) for entry in entries} == {("queue", None)}
        refused = await node.call(
            "PUT", "/v1/queues/q", {"paused": True}, {"Authorization": "Bearer bo"}
        )
        assert refused.status == 403


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("q", {}, "body"),
        ("q", {"speed": 1}, "speed"),
        ("q", {"rate": 0}, "rate"),
        ("q", {"rate": -1}, "rate"),
        ("q", {"rate": 1e7}, "rate"),
        ("q", {"rate": "1"}, "rate"),
        ("q", {"burst": 0}, "burst"),
        ("q", {"burst": 1.5}, "burst"),
        ("q", {"max_in_flight": 0}, "max_in_flight"),
        ("q", {"paused": None}, "paused"),
        ("q", {"paused": 1}, "paused"),
        ("q%20", {"paused": True}, "queue"),
        ("q" * 101, {"paused": True}, "queue"),
        ("a%2F..", {"paused": True}, "queue"),
        ("q?x=1", {"paused": True}, "x"),
    ],
)
async def test_what_is_wrong_is_named(
    node: RunningNode, path: str, body: dict[str, object], field: str
) -> None:
    answer = await node.call("PUT", f"/v1/queues/{path}", body)
    assert (answer.status, answer.fields) == (422, [field])
    assert await node.count("queues") == 0


async def test_a_name_with_slashes_is_written_with_escapes(node: RunningNode) -> None:
    for name in ("a/b:c.d", ".a/..b/c../...", "a//b"):
        await node.client.submit("t", queue=name, delay=3_600)
        queue = await node.client.update_queue(name, paused=True)
        assert queue.queue == name
        assert (await node.client.queue(name)).paused


async def test_every_queue_with_anything_is_listed(node: RunningNode, redis_url: str) -> None:
    await put(node, "set", rate=1)
    await node.client.submit("t", queue="later", delay=3600)
    await node.client.submit("t", queue="now")
    worker = counting_worker(redis_url, [], ["now", "idle"])
    async with running(worker):

        async def listed() -> Any:
            answer = await node.call("GET", "/v1/queues")
            found = {one["queue"]: one for one in answer.body["items"]}
            wanted = {"set", "later", "now", "idle"}
            counted = wanted <= found.keys() and found["later"]["pending"]
            return found if counted and found["idle"]["workers"] else None

        found = await wait_for(listed, 60, "all of them are listed")
        assert list(found) == ["idle", "later", "now", "set"]
        assert (found["later"]["pending"], found["later"]["backlog"]) == (1, 0)
        assert found["now"]["workers"] == 1
        pages, cursor = [], ""
        while True:
            page = (await node.call("GET", f"/v1/queues?limit=3{cursor}")).body
            pages.append([one["queue"] for one in page["items"]])
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert pages == [["idle", "later", "now"], ["set"]]
        found = (await node.call("GET", "/v1/queues?contains=L")).body["items"]
        assert [one["queue"] for one in found] == ["idle", "later"]
        assert (await node.call("GET", "/v1/queues?contains=%00")).fields == ["contains"]


async def test_a_pause_holds_on_all_nodes_and_over_a_restart(
    fresh_database: str, redis_url: str
) -> None:
    done: list[str] = []
    async with running(counting_worker(redis_url, done, ["q", "other"])):
        async with (
            running_node(fresh_database, redis_url) as node,
            running_node(fresh_database, redis_url, owns_slots=False) as second,
        ):
            await wait_for(
                lambda: second.context.vitals.owned_slots > 100, 60, "the slots are shared"
            )
            await put(second, "q", paused=True)
            await wait_for(
                lambda: "q" in node.context.controls.paused
                and "q" in second.context.controls.paused,
                30, "both nodes know",
            )  # fmt: skip
            ids = await node.client.submit_batch([{"type": "t", "queue": "q"}] * 50)
            await node.client.submit_batch([{"type": "t", "queue": "other"}] * 50)
            await wait_for(lambda: len(done) == 50, 60, "the other queue goes on")
            assert not {str(one) for one in ids} & set(done)
        async with running_node(fresh_database, redis_url) as node:
            await node.client.submit_batch([{"type": "t", "queue": "other"}] * 50)
            await wait_for(lambda: len(done) == 100, 60, "the other queue goes on")
            assert not {str(one) for one in ids} & set(done)
            await put(node, "q", paused=False)
            await wait_for(lambda: len(done) == 150, 60, "it goes on")
            assert len(set(done)) == 150


async def test_it_is_told_when_the_rate_lets_the_next_one_go(node: RunningNode) -> None:
    await put(node, "q", rate=0.001)
    await node.client.submit_batch([{"type": "t", "queue": "q"}] * 5)

    async def held() -> Any:
        queue = await get(node, "q")
        return queue if queue["next_token_at"] and queue["backlog"] else None

    queue = await wait_for(held, 60, "one is out, the rate holds the rest")
    assert queue["backlog"] == 1
    wait = parse_time(queue["next_token_at"]) - parse_time(queue["updated_at"])
    assert timedelta(seconds=900) < wait < timedelta(seconds=1_300)


async def test_what_redis_does_not_say_is_null(fresh_database: str, tmp_path: Path) -> None:
    with several(tmp_path, 1) as (valkey,):
        async with running_node(fresh_database, valkey.url) as node:
            with redis.Redis.from_url(valkey.url) as client:
                client.set(keys.tasks("odd"), "not a stream")
            await put(node, "fine", rate=1)
            await put(node, "odd", paused=True)
            items = (await node.call("GET", "/v1/queues")).body["items"]
            assert [(one["queue"], one["backlog"]) for one in items] == [("fine", 0), ("odd", None)]
            valkey.stop()
            later = await put(node, "fine", rate=2)
            assert (later["rate"], later["backlog"], later["workers"]) == (2, None, None)
            items = (await node.call("GET", "/v1/queues")).body["items"]
            assert [(one["queue"], one["backlog"]) for one in items] == [
                ("fine", None), ("odd", None),
            ]  # fmt: skip
            assert node.context.controls.of("odd").paused
            await wait_for(
                lambda: node.context.controls.of("fine").rate == 2,
                30,
                "the node knows without Redis",
            )
            valkey.start()


async def test_a_redis_that_hangs_is_not_waited_for_long(
    fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with several(tmp_path, 1) as (valkey,):
        async with running_node(fresh_database, valkey.url) as node:
            await put(node, "q", rate=1)
            streams = node.context.streams
            link = streams._link
            monkeypatch.setattr(link, "timeout_s", 3_600.0)  # so only its own limit counts
            for patient in (streams.sight, link.scripts):
                monkeypatch.setattr(patient, "_timeout_s", 3_600.0)
            valkey.pause()
            try:
                async with asyncio.timeout(60):
                    later = await put(node, "q", paused=True)
                    one = await get(node, "q")
                    (listed,) = (await node.call("GET", "/v1/queues")).body["items"]
            finally:
                valkey.resume()
    assert (later["paused"], later["rate"]) == (True, 1)
    unknown = {"backlog": None, "workers": None, "next_token_at": None}
    assert later == one == listed == {**later, **unknown}
