"""Looking at streams for people: who works, where a task is; and nothing is changed by it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hand_worker import HandWorker
from private_valkey import PrivateValkey
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from store_rig import NOW

from duly.storage import keys
from duly.storage.channel import subscribed
from duly.storage.claims import Claimed
from duly.storage.redis import call, connect
from duly.storage.sight import Liveness, QueueSight, Worker
from duly.storage.streams import Streams


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    one = connect(redis_url, name="test")
    yield one
    await one.aclose()


async def everything(client: Redis) -> dict[bytes, Any]:
    """Key -> a copy of its value."""
    names = await call(client, "KEYS", "*", timeout_s=10)
    return {name: await call(client, "DUMP", name, timeout_s=10) for name in names}


def task(queue: str = "default", task_id: UUID | None = None) -> Claimed:
    return Claimed(task_id or uuid4(), 1, "t", queue, NOW, 0, 300.0, "retry", "null")


async def test_a_queue_that_is_not_there(streams: Streams, client: Redis) -> None:
    assert await streams.sight.queue("none") == QueueSight(0, [], False, None, 0)
    assert await streams.sight.workers() == []
    assert await everything(client) == {}


async def test_where_a_task_is(streams: Streams, client: Redis, redis_url: str) -> None:
    one, two = task(), task()
    await streams.publish("default", [one, two])
    async with HandWorker(redis_url) as worker:
        await worker.live()
        await worker.read(1)
        before = await everything(client)
        held = await streams.sight.queue("default", str(one.id), 1)
        assert (held.in_stream, held.worker, held.backlog) == (True, "hand", 1)
        assert 0 <= held.held_s < 60
        waits = await streams.sight.queue("default", str(two.id), 1)
        assert (waits.in_stream, waits.worker) == (True, None)
        other_token = await streams.sight.queue("default", str(one.id), 2)
        assert (other_token.in_stream, other_token.worker) == (False, None)
        assert await everything(client) == before


async def test_a_stream_whose_group_is_gone(streams: Streams, client: Redis) -> None:
    one = task()
    await streams.publish("default", [one])
    await call(client, "XGROUP", "DESTROY", keys.tasks("default"), keys.WORKERS_GROUP, timeout_s=10)
    found = await streams.sight.queue("default", str(one.id), 1)
    assert (found.backlog, found.workers, found.in_stream, found.worker) == (1, [], True, None)


async def test_other_keys_in_the_place_of_a_queue_are_told(streams: Streams, client: Redis) -> None:
    await call(client, "SET", keys.tasks("default"), "text", timeout_s=10)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await streams.sight.queue("default")


async def test_what_workers_say(streams: Streams, client: Redis, redis_url: str) -> None:
    await streams.queues.announce("default")
    await streams.crews.of("default")  # leaves its mark among the consumers
    said = {
        "sdk": b'{"host":"h","pid":7,"queues":["default"],"concurrency":3,"running":1,"sdk":"s"}',
        "other": b"I am alive", "typed": b'{"concurrency":"many"}', "dead": None,
    }  # fmt: skip
    for name, sign in said.items():
        async with HandWorker(redis_url, name) as worker:
            await worker.join()
            if sign is not None:
                await worker.call("SET", keys.worker(name), sign, "PX", 8_000)
    found = {one.id: one for one in await streams.sight.workers()}
    assert found.keys() == said.keys()
    assert found["sdk"].says == Liveness("h", 7, ["default"], 3, 1, "s")
    assert found["other"].says == found["typed"].says == Liveness()
    assert found["dead"].says is None
    crew = await streams.sight.queue("default")
    assert (len(crew.alive), crew.concurrency) == (3, 5)


async def test_listening_without_a_sign_of_life_makes_no_worker(
    streams: Streams, client: Redis
) -> None:
    async with subscribed(client, keys.control("gone"), answer_s=30), subscribed(
        client, keys.control("here"), answer_s=30
    ):  # fmt: skip
        await call(client, "SET", keys.worker("here"), b"{}", "PX", 60_000, timeout_s=30)
        (found,) = await streams.sight.workers()
    assert found == Worker("here", 0, keys.LIVENESS_TTL_MS / 1000, Liveness())


async def test_without_the_right_to_ask_for_channels_the_others_are_seen(
    tmp_path: Path,
) -> None:
    server = PrivateValkey(tmp_path)
    server.start()
    try:
        streams = Streams(server.url, "node-a", timeout_s=30.0)
        await streams.publish("default", [task()])
        async with HandWorker(server.url) as worker:
            await worker.call("ACL SETUSER", "default", "-pubsub")
            await worker.live()
            await worker.read(1)
            (found,) = await streams.sight.workers()
        assert found.id == "hand"
        await streams.close()
    finally:
        server.stop()


async def test_a_name_that_is_no_text_is_shown_as_far_as_it_is(
    streams: Streams, client: Redis
) -> None:
    one = task()
    await streams.publish("default", [one])
    name, shown = "w\udcff", "w\ufffd"  # the byte FF
    read = ("XREADGROUP", "GROUP", keys.WORKERS_GROUP, name, "STREAMS", keys.tasks("default"), ">")
    await call(client, *read, timeout_s=30)
    await call(client, "SET", keys.worker(name), b"{}", "PX", 60_000, timeout_s=30)
    async with subscribed(client, keys.control(name), answer_s=30):
        (found,) = await streams.sight.workers()
    assert (found.id, found.pending, found.says) == (shown, 1, Liveness())
    assert (await streams.sight.queue("default", str(one.id), 1)).worker == shown


async def test_who_was_heard_of_last(streams: Streams, redis_url: str) -> None:
    """By the latest of a read and a renewal, if the key has the protocol's time to live."""
    async with HandWorker(redis_url, "w") as worker:
        await streams.publish("default", [task()])
        await worker.read(1)
        await worker.live(ttl_ms=keys.LIVENESS_TTL_MS)
        (one,) = await streams.sight.workers()
        assert 0 <= one.silent_s < 10
        await worker.live(ttl_ms=10 * keys.LIVENESS_TTL_MS)
        (one,) = await streams.sight.workers()
        assert 0 <= one.silent_s < 60
        assert one.pending == 1
