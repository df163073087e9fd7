"""GET /v1/tasks/{id}/explain: each situation is made on real servers, and told."""

import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from store_rig import query
from waiting import wait_for

from duly.nodes.client import Task
from duly.nodes.settings import Token
from duly.storage import keys, queues
from duly.storage.audit import Note
from duly.storage.queues import ControlChange
from duly.storage.slots import SLOTS
from duly.wheel.durations import from_us, parse_time

WINDOW = 20
LONG_S = 600


async def explained(node: RunningNode, task_id: object, *codes: str) -> list[Any]:
    """The reasons, once they are these."""

    async def ask() -> Any:
        answer = await node.call("GET", f"/v1/tasks/{task_id}/explain")
        assert answer.status == 200, answer
        found = [one["code"] for one in answer.body["reasons"]]
        last.append((found, answer.body["status"]))
        return answer.body if found == list(codes) else None

    last: list[Any] = []
    try:
        body = await wait_for(ask, 60, f"the reasons {codes}")
    except AssertionError as error:
        raise AssertionError(f"{error}; reasons and status were {last[-1]}") from None
    assert body["task_id"] == str(task_id)
    now = from_us(node.context.clock.now_us())
    assert timedelta() <= now - parse_time(body["at"]) < timedelta(minutes=1)
    reasons: list[Any] = body["reasons"]
    for one in reasons:
        assert one["message"].endswith(".")
    return reasons


def recent(node: RunningNode, text: str, after: datetime | None = None) -> bool:
    """Whether this time is after `after`, or of the last minutes."""
    now = from_us(node.context.clock.now_us())
    return (after or now - timedelta(minutes=5)) <= parse_time(text) <= now


async def test_what_has_ended(node: RunningNode) -> None:
    task = await node.client.submit("t", delay=LONG_S)
    await node.client.cancel(task.id)
    (reason,) = await explained(node, task.id, "finished")
    assert reason["outcome"] == "cancelled"
    assert recent(node, reason["finished_at"])
    path = f"/v1/tasks/{uuid.uuid4()}/explain"
    assert (await node.call("GET", path)).status == 404
    assert (await node.call("GET", f"/v1/tasks/{task.id}/explain?at=now")).fields == ["at"]
    assert (await node.call("GET", "/v1/tasks/x/explain")).fields == ["id"]


async def test_what_is_not_due(node: RunningNode, redis_url: str) -> None:
    task = await node.client.submit("t", delay=LONG_S)
    later, none = await explained(node, task.id, "not_due", "no_worker")
    assert parse_time(later["due"]) == task.next_run_at
    assert none["queue"] == "default"
    async with HandWorker(redis_url) as worker:
        await node.running_task()
        await worker.take()
        await worker.live()
        await explained(node, task.id, "not_due")


async def test_what_waits_after_a_failure(node: RunningNode, redis_url: str) -> None:
    backoff = {"kind": "fixed", "delay": LONG_S, "jitter": 0}
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        task = await node.client.submit("t", max_retries=4, backoff=backoff)
        await worker.report(await worker.take(), "failed")
        (reason,) = await explained(node, task.id, "backoff")
    again = await node.client.get(task.id)
    assert parse_time(reason["until"]) == again.next_run_at
    assert (reason["attempt"], reason["attempts"]) == (2, 5)


async def test_who_paused_it(fresh_database: str, redis_url: str) -> None:
    token = Token("anna", "submit", hashlib.sha256(b"secret").hexdigest())
    async with running_node(fresh_database, redis_url, tokens=(token,), token="secret") as node:
        task = await node.client.submit("t", delay=LONG_S)
        began = from_us(node.context.clock.now_us())
        await node.client.pause(task.id)
        reason, *_ = await explained(node, task.id, "paused", "not_due", "no_worker")
        assert reason["by"] == "anna"
        assert recent(node, reason["since"], began)
        await node.client.resume(task.id)
        await explained(node, task.id, "not_due", "no_worker")


async def test_who_paused_its_queue(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        now = from_us(node.context.clock.now_us())
        wanted, note = ControlChange(paused=True), Note("anna", "admin", "queue")
        await queues.control(node.context.db, "default", wanted, now, note)
        await wait_for(
            lambda: node.context.controls.of("default").paused, 30, "the node knows of the pause"
        )
        task = await node.client.submit("t")
        (reason,) = await explained(node, task.id, "queue_paused")
        assert (reason["queue"], reason["by"]) == ("default", "anna")
        assert parse_time(reason["since"]) == now


async def test_its_queue_is_held_to_a_rate(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        now = from_us(node.context.clock.now_us())
        wanted, note = ControlChange(set_rate=True, rate=0.001), Note("anna", "admin", "queue")
        await queues.control(node.context.db, "default", wanted, now, note)
        await wait_for(
            lambda: node.context.controls.of("default").rate, 30, "the node knows of the rate"
        )
        await node.running_task()
        task = await node.client.submit("t")
        (reason,) = await explained(node, task.id, "waiting_for_rate")
        assert (reason["queue"], reason["rate"], reason["ahead"]) == ("default", 0.001, 0)
        next_at = parse_time(reason["next_token_at"])
        assert timedelta(minutes=10) < next_at - now < timedelta(minutes=25)


async def test_its_concurrency_key_is_held(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        key: dict[str, Any] = {"concurrency_key": "tenant", "concurrency_limit": 2}
        running = {str((await node.running_task(**key)).id) for _ in range(2)}
        task = await node.client.submit("t", **key)
        (reason,) = await explained(node, task.id, "waiting_for_key")
        assert (reason["key"], reason["limit"], reason["running"]) == ("tenant", 2, 2)
        assert set(reason["holders"]) == running
        for _ in running:
            await worker.report(await worker.take())
        await explained(node, task.id, "in_stream")


async def test_enough_of_its_queue_runs(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        now = from_us(node.context.clock.now_us())
        wanted = ControlChange(set_max_in_flight=True, max_in_flight=1)
        note = Note("anna", "admin", "queue")
        await queues.control(node.context.db, "default", wanted, now, note)
        await wait_for(
            lambda: node.context.controls.of("default").max_in_flight, 30, "the node knows of it"
        )
        await node.running_task()
        task = await node.client.submit("t")
        (reason,) = await explained(node, task.id, "waiting_for_in_flight")
        assert (reason["queue"], reason["max_in_flight"], reason["running"]) == ("default", 1, 1)
        await worker.report(await worker.take())
        await explained(node, task.id, "in_stream")


async def test_a_slot_without_an_owner(node: RunningNode, redis_url: str) -> None:
    slot = 7
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        await worker.call("SET", keys.lease(slot), "other", "PX", LONG_S * 1000)
        await wait_for(lambda: node.context.vitals.owned_slots == 255, 30, "the slot is lost")
        task = await node.client.submit("t", id=id_in(slot))
        (reason,) = await explained(node, task.id, "slot_unowned")
        assert (reason["slot"], reason["last_owner"]) == (slot, node.context.node_id)
        await query(
            node.context.db,
            "update slots set owner = null, free_since = $1 where slot = $2",
            task.created_at, slot,
        )  # fmt: skip
        (reason,) = await explained(node, task.id, "slot_unowned")
        assert (reason["last_owner"], parse_time(reason["since"])) == (None, task.created_at)


async def test_the_owner_of_a_slot_is_dead(node: RunningNode, redis_url: str) -> None:
    """It was last heard of when the last node that saw it go knows."""
    slot = 7
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        await worker.call("SET", keys.lease(slot), "other", "PX", LONG_S * 1000)
        await wait_for(lambda: node.context.vitals.owned_slots == 255, 30, "the slot is lost")
        seconds, _ = await worker.call("TIME")
        await worker.call("ZADD", keys.NODES_SEEN, (seconds - 30) * 1000, "dead")
        await query(node.context.db, "update slots set owner = 'dead' where slot = $1", slot)
        task = await node.client.submit("t", id=id_in(slot))
        (reason,) = await explained(node, task.id, "slot_unowned")
        assert (reason["slot"], reason["last_owner"]) == (slot, "dead")
        assert reason["since"] is not None
        assert recent(node, reason["since"])


async def test_nobody_takes_its_queue(fresh_database: str, redis_url: str) -> None:
    async with running_node(fresh_database, redis_url, window_floor=WINDOW) as node:
        fired = await node.running_task()
        none, streamed = await explained(node, fired.id, "no_worker", "in_stream")
        assert none["queue"] == "default"
        assert (streamed["node"], streamed["workers"]) == (node.context.node_id, 0)
        assert recent(node, streamed["since"])
        await node.client.submit_batch([{"type": "t"}] * WINDOW)
        task = await node.client.submit("t")
        none, full = await explained(node, task.id, "no_worker", "waiting_for_capacity")
        assert (full["window"], full["workers"]) == (WINDOW, 0)
        # What is known of the stream may be older than the last publication.
        assert WINDOW - WINDOW // 4 < full["backlog"] < 2 * WINDOW


async def test_it_waits_for_capacity(fresh_database: str, redis_url: str) -> None:
    async with (
        running_node(fresh_database, redis_url, window_floor=WINDOW) as node,
        HandWorker(redis_url) as worker,
    ):
        await worker.live_and_join()
        await node.client.submit_batch([{"type": "t", "priority": 9}] * WINDOW)

        async def full() -> bool:
            return int(await worker.call("XLEN", keys.tasks("default"))) == WINDOW

        await wait_for(full, 60, "the stream is full")
        due = from_us(node.context.clock.now_us())
        first = await node.client.submit("t", priority=5, run_at=due)
        last = await node.client.submit("t", priority=3, run_at=due - timedelta(hours=1))
        await node.client.submit("t", priority=4, run_at=due, queue="other", delay=None)
        (reason,) = await explained(node, first.id, "waiting_for_capacity")
        del reason["message"]
        assert reason == {
            "code": "waiting_for_capacity", "queue": "default", "window": WINDOW, "backlog": WINDOW,
            "workers": 1, "ahead": 0, "ahead_exact": True,
        }  # fmt: skip
        (reason,) = await explained(node, last.id, "waiting_for_capacity")
        assert (reason["ahead"], reason["ahead_exact"]) == (1, True)


async def test_it_waits_in_the_stream(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        task = await node.running_task()
        (reason,) = await explained(node, task.id, "in_stream")
        assert (reason["node"], reason["queue"]) == (node.context.node_id, "default")
        assert (reason["backlog"], reason["workers"]) == (1, 1)


async def test_a_worker_has_it(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url, "w1") as worker:
        await worker.live_and_join()
        task = await node.client.submit("t", max_retries=0)
        await worker.take()
        (reason,) = await explained(node, task.id, "running")
        assert reason["worker"] == "w1"
        assert recent(node, reason["since"])
        assert 0 <= reason["silent_s"] < 60
        await node.client.pause(task.id)
        await explained(node, task.id, "running", "paused")
        await node.client.resume(task.id)
        await worker.die()
        (reason,) = await explained(node, task.id, "running")
        assert "counts as lost" in reason["message"]
        (reason,) = await explained(node, task.id, "finished")
        assert reason["outcome"] == "failed"


async def test_it_was_claimed_and_is_nowhere(fresh_database: str, redis_url: str) -> None:
    async with (
        running_node(fresh_database, redis_url, dispatch_grace_s=LONG_S) as node,
        HandWorker(redis_url) as worker,
    ):
        await worker.live_and_join()
        task = await node.running_task()
        await explained(node, task.id, "in_stream")
        entry = await worker.call("HGET", keys.entries("default"), str(task.id))
        await worker.call("XDEL", keys.tasks("default"), entry)
        (reason,) = await explained(node, task.id, "claimed")
        assert reason["node"] == node.context.node_id
        assert recent(node, reason["since"])


async def test_nothing_holds_it(node: RunningNode, fresh_database: str, redis_url: str) -> None:
    """A claim is made to wait by a lock on the slot's row."""
    slot = 7
    session = await asyncpg.connect(fresh_database)
    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        await session.execute("begin")
        await session.execute("select from slots where slot = $1 for update", slot)
        task = await node.client.submit("t", id=id_in(slot))
        (reason,) = await explained(node, task.id, "due_now")
        assert (reason["owner"], reason["ahead"]) == (node.context.node_id, 0)
        assert reason["failing"] == []
        node.context.vitals.redis.note("something", "refused")

        async def told() -> bool:
            (reason,) = await explained(node, task.id, "due_now")
            return bool(reason["failing"] == ["redis"])

        await wait_for(told, 60, "the node has told the others")
        node.context.vitals.redis.clear("something")
        assert parse_time(reason["due"]) == task.next_run_at
        await session.close()
        await explained(node, task.id, "in_stream")


async def test_the_keys_of_its_queue_cannot_be_used(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as worker:
        await worker.call("SET", keys.tasks("default"), "text")
        task = await node.client.submit("t")
        # It is claimed before the node can know; what it cannot publish is left to the reaper.
        reason, _ = await explained(node, task.id, "queue_unusable", "claimed")
        assert reason["queue"] == "default"
        assert "WRONGTYPE" in reason["detail"]


@asynccontextmanager
async def with_private_redis(
    database_url: str, folder: Path
) -> AsyncIterator[tuple[RunningNode, PrivateValkey, Task]]:
    """A node, its Redis, and a task whose start is confirmed in PostgreSQL."""
    server = PrivateValkey(folder)
    server.start()
    try:
        async with (
            # Leases that outlast what is noticed of the outage.
            running_node(database_url, server.url, redis_timeout_s=1.0, lease_ttl_s=60.0) as node,
            HandWorker(server.url, "w1") as worker,
        ):
            await worker.live_and_join()
            task = await node.client.submit("t", on_lost="fail", timeout=LONG_S)
            taken = await worker.take()
            start = {"token": int(taken.fields["token"]), "start_id": "s", "worker": "w1"}
            answer = await node.call("POST", f"/v1/tasks/{task.id}/start", start)
            assert answer.status == 200, answer
            yield node, server, task
    finally:
        server.stop()


async def outage_noticed(node: RunningNode) -> object:
    """The id of a task that was claimed before the node could know that Redis is in trouble."""
    task = await node.client.submit("t")
    await wait_for(
        lambda: "publishing tasks" in node.context.vitals.redis.now, 60, "the node cannot publish"
    )
    return task.id


async def test_redis_is_down_or_stands_still(fresh_database: str, tmp_path: Path) -> None:
    async with with_private_redis(fresh_database, tmp_path) as (node, server, begun):
        before = from_us(node.context.clock.now_us())
        for break_it, mend in ((server.stop, server.start), (server.pause, server.resume)):
            await wait_for(
                lambda: node.context.vitals.owned_slots == SLOTS, 60, "the node owns its slots"
            )
            break_it()
            claimed = await outage_noticed(node)
            await explained(node, claimed, "redis_unreachable", "claimed")
            task = await node.client.submit("t")
            (reason,) = await explained(node, task.id, "redis_unreachable")
            assert recent(node, reason["since"], before)
            assert reason["detail"]
            _, held = await explained(node, begun.id, "redis_unreachable", "running")
            assert (held["worker"], held["silent_s"]) == ("w1", None)
            future = await node.client.submit("t", delay=LONG_S)
            await explained(node, future.id, "not_due", "redis_unreachable")
            mend()
            await explained(node, future.id, "not_due", "no_worker")


async def test_redis_takes_no_writes(fresh_database: str, tmp_path: Path) -> None:
    async with (
        with_private_redis(fresh_database, tmp_path) as (node, server, _),
        HandWorker(server.url) as hand,
    ):
        await hand.call("CONFIG", "SET", "maxmemory", 1)
        await outage_noticed(node)
        task = await node.client.submit("t")
        (reason,) = await explained(node, task.id, "redis_unreachable")
        assert "maxmemory" in reason["detail"]
        await hand.call("CONFIG", "SET", "maxmemory", 0)
        await explained(node, task.id, "in_stream")


async def test_without_lease_servers_nobody_knows_who_fires(
    fresh_database: str, redis_url: str, tmp_path: Path
) -> None:
    server = PrivateValkey(tmp_path)
    server.start()
    try:
        async with running_node(fresh_database, redis_url, lease_redis_urls=(server.url,)) as node:
            server.stop()
            await wait_for(lambda: node.context.vitals.owned_slots == 0, 60, "no slot is owned")
            task = await node.client.submit("t")
            reason, _ = await explained(node, task.id, "redis_unreachable", "no_worker")
            assert "lease servers" in reason["detail"]
    finally:
        server.stop()


async def test_any_node_can_answer(fresh_database: str, redis_url: str) -> None:
    async with (
        running_node(fresh_database, redis_url) as first,
        running_node(fresh_database, redis_url, owns_slots=False) as second,
        HandWorker(redis_url) as worker,
    ):
        await worker.live_and_join()
        task = await first.running_task()
        one, other = [await explained(node, task.id, "in_stream") for node in (first, second)]
        assert one[0]["node"] == other[0]["node"]


def id_in(slot: int) -> str:
    """An id of a task in this slot."""
    while True:
        made = uuid.uuid4()
        if hashlib.sha256(made.bytes).digest()[0] == slot:
            return str(made)
