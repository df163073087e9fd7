"""The client of a Redis Cluster: where commands go, redirections, reads of several streams, marks, signs of life."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis.crc import key_slot
from redis.exceptions import OutOfMemoryError, ResponseError
from redis_cluster import TestCluster, cluster, command, move_slot, node_id
from store_rig import NOW
from waiting import wait_for

from duly.storage import keys
from duly.storage.channel import subscribed
from duly.storage.claims import Claimed
from duly.storage.conveyor import Conveyor, Entry, GroupMissingError
from duly.storage.redis import (
    TROUBLE,
    PrimaryAwayError,
    Scripts,
    call,
    connect_any,
    is_of_one_queue,
    server_time_s,
)
from duly.storage.redis_cluster import ClusterClient
from duly.storage.streams import Streams

WAIT_S = 60


@pytest.fixture
async def servers(started: TestCluster) -> TestCluster:
    """Empty at the start of each test, which stops none of them."""
    for server in started.primaries:
        await command(server, "FLUSHALL")
    return started


@pytest.fixture
async def client(servers: TestCluster) -> AsyncIterator[ClusterClient]:
    async with opened(servers) as one:
        yield one


class opened:  # noqa: N801 - used as a function
    """A client of the cluster."""

    def __init__(self, servers: TestCluster) -> None:
        made = connect_any(servers.url, name="test")
        assert isinstance(made, ClusterClient)
        self._client = made

    async def __aenter__(self) -> ClusterClient:
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


def task(queue: str) -> Claimed:
    return Claimed(uuid4(), 1, "t", queue, NOW, 0, 300.0, "retry", "null")


async def test_commands_and_scripts_go_where_their_keys_are(
    servers: TestCluster, client: ClusterClient
) -> None:
    scripts = Scripts(client, 5.0)
    for n in range(3):
        queue = servers.queue_on(n)
        await call(client, "HSET", keys.inflight(queue), "id", "1", timeout_s=5)
        await scripts.run("drop_entries", [keys.inflight(queue), keys.entries(queue)], ["id"])
        await call(client, "XGROUP", "CREATE", keys.tasks(queue), "g", "0", "MKSTREAM", timeout_s=5)
        for server in servers.primaries:
            there = {bytes(key).decode() for key in await command(server, "KEYS", "*")}
            assert ({keys.inflight(queue), keys.tasks(queue)} <= there) == (
                server is servers.primaries[n]
            )
    seconds, _ = await server_time_s(client, "any", timeout_s=5)
    assert abs(seconds - time.time()) < 60


async def test_many_commands_are_answered_in_their_order(client: ClusterClient) -> None:
    names = [f"k{n}" for n in range(100)]
    await client.each([("SET", name, name) for name in names], 5.0)
    answers = await client.each([*(("GET", name) for name in names), ("HGET", "k1", "f")], 5.0)
    assert [one.value for one in answers[:-1]] == [name.encode() for name in names]
    assert isinstance(answers[-1].value, ResponseError), "an error is that of its command alone"
    assert len({one.server for one in answers}) == 3


async def test_a_call_that_is_cut_short_leaves_no_answer_behind(client: ClusterClient) -> None:
    chance = random.Random(1)
    for n in range(200):
        calls = [
            asyncio.create_task(call(client, "INCR", "other", timeout_s=5)),
            asyncio.create_task(client.each([("GET", f"no{m}") for m in range(9)], 5.0)),
        ]
        await asyncio.sleep(chance.random() * 0.002)
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await call(client, "SET", f"k{n}", f"v{n}", timeout_s=5)
        assert await call(client, "GET", f"k{n}", timeout_s=5) == f"v{n}".encode()


async def test_a_slot_on_its_way_is_found_and_so_are_new_keys_of_it(
    servers: TestCluster, client: ClusterClient
) -> None:
    """ASK for what is not at the old place any more, by as many connections as there are; then MOVED."""
    source, target, other = servers.primaries
    tag = servers.queue_on(0, "moving")
    slot = key_slot(tag.encode())
    await call(client, "SET", f"{{{tag}}}old", "1", timeout_s=5)
    try:
        await command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", await node_id(source))
        await command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", await node_id(target))
        names = [f"{{{tag}}}new{n}" for n in range(50)]
        await asyncio.gather(*(call(client, "SET", name, "2", timeout_s=5) for name in names))
        answers = await client.each([("GET", name) for name in (*names, f"{{{tag}}}old")], 5.0)
        assert [one.value for one in answers] == [b"2"] * 50 + [b"1"]
        began = time.monotonic()
        with pytest.raises(PrimaryAwayError, match="rehashing"):
            await call(client, "EXISTS", f"{{{tag}}}old", names[0], timeout_s=5)
        assert time.monotonic() - began < 4
        assert await move_slot(tag, source, target, [other]) == 1
        assert await call(client, "GET", f"{{{tag}}}old", timeout_s=5) == b"1"
    finally:
        await move_slot(tag, target, source, [other])


async def test_what_is_published_at_any_server_is_heard(client: ClusterClient) -> None:
    for n in range(5):
        async with subscribed(client, f"channel{n}", answer_s=5) as next_message:
            await asyncio.sleep(0)
            await call(client, "PUBLISH", f"channel{n}", b"m", timeout_s=5)
            assert await next_message(10.0) == b"m"
            assert await client.everywhere("PUBSUB CHANNELS", f"channel{n}", timeout_s=5) != [
                [],
                [],
                [],
            ]


# Reads of several streams


@pytest.fixture
async def conveyor(servers: TestCluster) -> AsyncIterator[Conveyor]:
    one = Conveyor(servers.url, "w")
    yield one
    await one.close()


@pytest.fixture
async def streams(servers: TestCluster) -> AsyncIterator[Streams]:
    one = Streams(servers.url, "node-a", timeout_s=5.0)
    yield one
    await one.close()


async def test_a_read_of_all_queues_ends_with_the_first_that_comes(
    servers: TestCluster, conveyor: Conveyor, streams: Streams
) -> None:
    queues = [servers.queue_on(n) for n in range(3)]
    for queue in queues:
        await conveyor.create_group(queue)
    for queue in queues * 2:
        reading = asyncio.create_task(conveyor.read(queues, 1, 20_000))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await streams.publish(queue, [task(queue)])
        found = await reading
        assert [one.queue for one in found] == [queue]
        assert time.monotonic() - began < 5
    for queue in queues:
        await streams.publish(queue, [task(queue), task(queue)])
    found = await conveyor.read(queues, 1, 20_000)
    assert sorted(one.queue for one in found) == queues, "what is there of each, at once"
    assert await conveyor.read(queues, 5, 0) != []
    assert await conveyor.read(queues, 5, 0) == []
    for queue in queues:
        assert len(await conveyor.pending(queue)) == 4


async def test_a_read_can_be_ended(servers: TestCluster, conveyor: Conveyor) -> None:
    for queues in ([servers.queue_on(1)], [servers.queue_on(n) for n in range(3)]):
        for queue in queues:
            await conveyor.create_group(queue)
        reading = asyncio.create_task(conveyor.read(queues, 1, 30_000))
        began = time.monotonic()
        while not reading.done():
            await conveyor.unblock()
            await asyncio.wait({reading}, timeout=0.05)
        assert await reading == []
        assert time.monotonic() - began < 10


async def test_a_missing_group_is_told(servers: TestCluster, conveyor: Conveyor) -> None:
    queues = [servers.queue_on(n) for n in range(2)]
    await conveyor.create_group(queues[0])
    for wanted in (queues, queues[1:]):
        with pytest.raises(GroupMissingError):
            await conveyor.read(wanted, 1, 1000)


async def test_what_is_found_is_given_out_before_what_fails(
    servers: TestCluster, conveyor: Conveyor, streams: Streams
) -> None:
    good, bad = servers.queue_on(0), servers.queue_on(1)
    await streams.publish(good, [task(good)])
    found = await conveyor.read([bad, good], 1, 1000)
    assert [one.queue for one in found if isinstance(one, Entry)] == [good]
    with pytest.raises(GroupMissingError):
        await conveyor.read([bad, good], 1, 1000)


# Marks and signs of life


async def test_a_loss_on_any_primary_is_seen_by_every_node(
    servers: TestCluster, streams: Streams
) -> None:
    other = Streams(servers.url, "node-b", timeout_s=5.0)
    try:
        before = await streams.data_marks()
        assert len(before.marks) == 3
        assert await other.data_marks() == before
        assert not before.lost_since(before)
        for server in servers.primaries:
            await command(server, "FLUSHALL")
            now = await streams.data_marks()
            assert now.lost_since(before)
            assert sum(before.marks[name] != mark for name, mark in now.marks.items()) == 1
            assert await other.data_marks() == now
            before = now
    finally:
        await other.close()


async def test_an_away_primary_is_trouble_of_its_own_keys(tmp_path: Path) -> None:
    """Its signs of life count on as they were, until it is known what it still has."""
    async with cluster(tmp_path) as servers:
        streams = Streams(servers.url, "node-a", timeout_s=2.0)
        here, there = servers.queue_on(0), servers.queue_on(1)
        sign = next(f"w{n}" for n in range(99) if servers.place(keys.worker(f"w{n}")) == 1)
        try:
            before = await streams.data_marks()
            await streams.publish(here, [task(here)])
            await streams.publish(there, [task(there)])
            for server in servers.primaries[:1]:
                await command(
                    server, "XREADGROUP", "GROUP", keys.WORKERS_GROUP, sign, "STREAMS", keys.tasks(here), ">"
                )  # fmt: skip
            await command(servers.primaries[1], "SET", keys.worker(sign), "says", "PX", 100_000)
            assert [one.sign for one in (await streams.crews.of(here)).workers] == [b"says"]
            servers.primaries[1].stop()
            with pytest.raises(PrimaryAwayError) as caught:
                await streams.publish(there, [task(there)])
            assert is_of_one_queue(caught.value)
            await streams.publish(here, [task(here)])
            assert {here, there} <= await streams.queues.names()
            assert [one.sign for one in (await streams.crews.of(here)).workers] == [b"says"]
            now = (await streams.data_marks()).kept_from(before)
            assert len(now.away) == 1
            assert not now.lost_since(before)
            assert list(await streams.probe()) == list(now.away)

            servers.primaries[1].start()
            await wait_for(
                lambda: streams.backlog(there), WAIT_S, "its keys are served again", ignore=TROUBLE
            )
            signs = [one.sign for one in (await streams.crews.of(here)).workers]
            assert signs == [b"says"], "it has lost it, and nobody could renew it"
            after = await streams.data_marks()
            assert after.lost_since(now)
            assert [one.sign for one in (await streams.crews.of(here)).workers] == [None]
        finally:
            await streams.close()


async def test_a_full_primary_is_trouble_of_its_own_queues(
    servers: TestCluster, streams: Streams
) -> None:
    """A worker whose sign of life is there stays alive."""
    full, free = servers.queue_on(0), servers.queue_on(1)
    sign = next(f"w{n}" for n in range(99) if servers.place(keys.worker(f"w{n}")) == 0)
    conveyor = Conveyor(servers.url, sign)
    try:
        for queue in (full, free):
            await streams.publish(queue, [task(queue)])
        await conveyor.beat(b"{}")
        await command(servers.primaries[0], "PEXPIRE", keys.worker(sign), 1000)
        await command(servers.primaries[0], "CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(OutOfMemoryError) as caught:
            await streams.publish(full, [task(full)])
        assert is_of_one_queue(caught.value)
        await streams.publish(free, [task(free)])
        await conveyor.beat(b"{}")
        assert await command(servers.primaries[0], "PTTL", keys.worker(sign)) > 5000
        assert len(await streams.probe()) == 1
    finally:
        await command(servers.primaries[0], "CONFIG", "SET", "maxmemory", "0")
        await conveyor.close()


async def test_no_server_at_all_is_trouble(tmp_path: Path) -> None:
    async with cluster(tmp_path) as servers:
        streams = Streams(servers.url, "node-a", timeout_s=2.0)
        try:
            await streams.data_marks()
            for server in servers.primaries:
                server.stop()
            attempts: list[Any] = [streams.data_marks, streams.probe, streams.queues.names]
            for attempt in attempts:
                with pytest.raises(TROUBLE):
                    await attempt()
            for server in servers.primaries:
                server.start()
            await wait_for(streams.data_marks, WAIT_S, "all work again", ignore=TROUBLE)
        finally:
            await streams.close()
