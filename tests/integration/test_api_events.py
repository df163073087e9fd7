"""GET /v1/events: what happens to tasks, as it happens."""

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from event_rig import events
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from waiting import wait_for

from duly.actors.feed import Feed
from duly.nodes.api.access import Caller
from duly.nodes.api.event_hub import QUEUE_MAX, Client, EventHub, Line
from duly.nodes.settings import Token

FAR = "2040-01-01T00:00:00Z"


async def test_the_life_of_a_task_is_told(node: RunningNode) -> None:
    async with events(node.http) as stream:
        task = await node.running_task(
            "mail.send", queue="mails", max_retries=1, backoff={"delay": 0}
        )
        claimed = await stream.until("task", change="claimed", task_id=str(task.id))
        assert claimed.data | {"at": None} == {
            "task_id": str(task.id), "change": "claimed", "status": "running", "type": "mail.send",
            "queue": "mails", "token": 1, "at": None,
        }  # fmt: skip
        report = {"token": 1, "outcome": "failed", "error": "x"}
        path = f"/v1/tasks/{task.id}/report"
        assert (await node.call("POST", path, report)).status == 200
        await stream.until("task", change="retrying", token=1)
        await stream.until("task", change="claimed", token=2)
        assert (await node.call("POST", path, report)).status == 409
        await stream.until("task", change="stale", token=1)
        done = {"token": 2, "outcome": "completed"}
        assert (await node.call("POST", path, done)).status == 200
        await stream.until("task", change="completed", status="completed", token=2)


async def test_what_people_do_is_told(node: RunningNode) -> None:
    async with events(node.http) as stream:
        task = await node.client.submit("a", run_at=FAR)
        await stream.until("task", change="submitted", status="pending", task_id=str(task.id))
        await node.client.pause(task.id)
        await stream.until("task", change="paused")
        await node.client.resume(task.id)
        await stream.until("task", change="resumed")
        await node.client.update(task.id, priority=9)
        await stream.until("task", change="changed")
        await node.client.cancel(task.id)
        await stream.until("task", change="cancelled", status="cancelled")
        (batched,) = await node.client.submit_batch([{"type": "b", "run_at": FAR}])
        await stream.until("task", change="submitted", task_id=str(batched))


async def test_how_the_cluster_does_is_told_every_two_seconds(node: RunningNode) -> None:
    async with events(node.http) as stream:
        before = await stream.until("stats")
        first = await stream.until("stats")
        # Of the minute that is over, too: its last seconds are told after it.
        at = [datetime.fromisoformat(one.data["at"]) for one in (before, first)]
        assert at[1] - at[0] == timedelta(minutes=1)
        assert {
            "at",
            "started",
            "completed",
            "failed",
            "lag_p50",
            "queue_depth",
        } <= first.data.keys()
        await node.running_task("a")
        heard = first
        while not heard.data["started"]:
            heard = await stream.until("stats")


async def test_filters(node: RunningNode) -> None:
    first = await node.client.submit("a", queue="q", run_at=FAR)
    async with (
        events(node.http, "?queue=r") as by_queue,
        events(node.http, "?type=c") as by_type,
        events(node.http, f"?task_id={first.id}") as by_id,
    ):
        for kind, queue in (("a", "q"), ("b", "r"), ("c", "s")):
            await node.client.submit(kind, queue=queue, run_at=FAR)
        await node.client.pause(first.id)
        heard = [await stream.until("task") for stream in (by_queue, by_type, by_id)]
        assert [one.data["type"] for one in heard] == ["b", "c", "a"]
    for query, field in (("?queu=a", "queu"), ("?task_id=x", "task_id"), ("?queue=%00", "queue")):
        answer = await node.call("GET", f"/v1/events{query}")
        assert (answer.status, answer.fields) == (422, [field])


async def test_a_client_hears_what_happens_at_another_node(
    node: RunningNode, fresh_database: str, redis_url: str
) -> None:
    async with running_node(fresh_database, redis_url, owns_slots=False) as other:
        feed: Feed = other.context.feed
        assert not feed.wanted
        async with events(node.http) as stream:
            await wait_for(lambda: feed.wanted, 60, "the other node knows that somebody looks on")
            task = await other.client.submit("a", run_at=FAR)
            await stream.until("task", change="submitted", task_id=str(task.id))
        await wait_for(lambda: not feed.wanted, 60, "it knows that nobody does any more")
        assert not node.context.feed.wanted


async def test_the_stream_outlives_redis(fresh_database: str, tmp_path: Path) -> None:
    valkey = PrivateValkey(tmp_path)
    valkey.start()
    try:
        async with (
            running_node(fresh_database, valkey.url, may_crash=False) as node,
            events(node.http) as stream,
        ):
            valkey.stop()
            await stream.until("state", live=False)
            valkey.start()
            await stream.until("state", live=True)
            task = await node.client.submit("a", run_at=FAR)
            await stream.until("task", change="submitted", task_id=str(task.id))
    finally:
        valkey.stop()


async def test_a_stop_does_not_wait_for_those_who_look_on(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url, stop_grace_s=120.0) as node,
        events(node.http) as stream,
    ):
        node.supervisor.request_stop()
        while await stream.next() is not None:
            pass


async def test_a_client_that_does_not_keep_up_is_told_how_much_it_missed() -> None:
    client = Client(lambda _: True)
    for _ in range(QUEUE_MAX + 3):
        client.put(Line("task", b"{}"))
    client.leave_out(4)
    lines = await client.lines(0)
    assert len(lines) == QUEUE_MAX + 1
    assert lines[-1] == Line("dropped", b'{"count":7}')
    assert await client.lines(0) == []
    client.put(Line("task", b"{}"))
    assert await client.lines(0) == [Line("task", b"{}")]


async def test_a_client_that_goes_before_its_stream_begins_is_no_error(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare = web.StreamResponse.prepare

    async def gone(self: web.StreamResponse, request: web.BaseRequest) -> object:
        if self.content_type == "text/event-stream":
            raise ConnectionResetError("Cannot write to closing transport")
        return await prepare(self, request)

    monkeypatch.setattr(web.StreamResponse, "prepare", gone)
    with pytest.raises(aiohttp.ClientError):
        await node.call("GET", "/v1/events")
    await wait_for(lambda: not node.context.feed.listeners, 60, "the one that left is gone")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_only_so_many_may_look_on(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.nodes.api.events.CLIENTS_MAX", 1)
    async with events(node.http):
        answer = await node.call("GET", "/v1/events")
        assert answer.status == 503

    await wait_for(lambda: not node.context.feed.listeners, 60, "the one that left is gone")
    async with events(node.http) as stream:
        await node.client.submit("a", run_at=FAR)
        await stream.until("task", change="submitted")


async def test_who_comes_after_a_failure_is_served_while_others_are_on_their_way_out(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = True

    async def newest() -> list[bytes]:
        if fails:
            raise RuntimeError("a fault")
        return [b'{"n": 1}']

    hub = EventHub(node.context, newest)
    with hub.client(lambda _: True, None) as first:
        await wait_for(lambda: first.closed, 60, "the first has to go")
        fails = False
        with hub.client(lambda _: True, None) as second:
            heard: list[str] = []

            async def told() -> bool:
                heard.extend(line.name for line in await second.lines(0.1))
                return {"stats", "state"} <= set(heard)

            await wait_for(told, 60, "the second hears")
            assert not second.closed


async def test_one_token_may_not_take_all_streams(
    fresh_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.api.events.OF_ONE_TOKEN_MAX", 2)
    tokens = tuple(
        Token(name, "read", hashlib.sha256(name.encode()).hexdigest()) for name in ("ann", "bo")
    )
    as_bo = {"Authorization": "Bearer bo"}
    async with running_node(fresh_database, redis_url, tokens=tokens, token="ann") as node:
        async with events(node.http), events(node.http) as stream:
            answer = await node.call("GET", "/v1/events")
            assert (answer.status, answer.headers["Retry-After"]) == (429, "10")
            async with node.http.get("/v1/events", headers=as_bo) as other:
                assert other.status == 200
            await stream.until("stats")
        await wait_for(lambda: not node.context.feed.listeners, 60, "those that left are gone")
        async with events(node.http):
            pass


async def test_a_stream_ends_with_its_token(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = Caller("brief", "read", datetime.now(UTC) + timedelta(seconds=2))
    monkeypatch.setattr("duly.nodes.api.events.caller", lambda: brief)
    async with node.http.get("/v1/events") as answer:
        assert answer.status == 200
        async with asyncio.timeout(120):  # far below the 15 minutes of others
            while await answer.content.readline():
                pass
