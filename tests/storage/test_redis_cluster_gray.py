"""Servers of a Redis Cluster that hang, or refuse; and hundreds of queues."""

import asyncio
import time

import pytest
from redis.crc import key_slot
from redis_cluster import TestCluster, command, node_id
from waiting import wait_for

from duly.storage import keys
from duly.storage.conveyor import Conveyor
from duly.storage.redis import TROUBLE, PrimaryAwayError, call
from duly.storage.redis_cluster import ClusterClient

WAIT_S = 60


async def entry(servers: TestCluster, queue: str) -> None:
    words = ("id", "a", "token", "1", "type", "t", "due", "0")
    await command(servers.primaries[servers.place(keys.tasks(queue))], "XADD", keys.tasks(queue), "*", *words)  # fmt: skip


async def test_calls_wait_once_for_a_primary_that_hangs(
    servers: TestCluster, client: ClusterClient
) -> None:
    key = servers.queue_on(1)
    await call(client, "SET", key, "1", timeout_s=5)
    servers.primaries[1].pause()
    try:
        with pytest.raises(PrimaryAwayError):
            await call(client, "GET", key, timeout_s=1)
        until = time.monotonic() + 4
        while time.monotonic() < until:
            began = time.monotonic()
            with pytest.raises(PrimaryAwayError):
                await call(client, "GET", key, timeout_s=5)
            assert time.monotonic() - began < 2
            await asyncio.sleep(0.05)
    finally:
        servers.primaries[1].resume()

    async def answers() -> bool:
        return bool(await call(client, "GET", key, timeout_s=5) == b"1")

    await wait_for(answers, WAIT_S, "it is asked again", ignore=TROUBLE)


async def test_messages_go_by_another_primary_while_one_hangs(
    servers: TestCluster, client: ClusterClient
) -> None:
    first = next(iter(await client.map.primaries()))
    hangs = next(one for one in servers.primaries if first.endswith(f":{one.port}"))
    hangs.pause()
    try:
        for _ in range(3):
            assert await call(client, "PUBLISH", "channel", b"m", timeout_s=5) == 0
    finally:
        hangs.resume()


async def test_a_read_finds_out_that_a_primary_hangs(servers: TestCluster) -> None:
    good, bad = servers.queue_on(0), servers.queue_on(1)
    conveyor = Conveyor(servers.url, "w")
    try:
        for queue in (good, bad):
            await conveyor.create_group(queue)
        assert await conveyor.read([good, bad], 1, 100) == []
        reading = asyncio.create_task(conveyor.read([good, bad], 1, 20_000))
        await asyncio.sleep(0.2)  # it waits by then, or else is slower: then it fails sooner
        servers.primaries[1].pause()
        await entry(servers, good)
        assert [one.queue for one in await reading] == [good]
        began = time.monotonic()
        with pytest.raises(PrimaryAwayError):
            await conveyor.check_queue(bad)
        assert time.monotonic() - began < 3
    finally:
        servers.primaries[1].resume()
        await conveyor.close()


async def test_hundreds_of_queues_take_one_connection_each(servers: TestCluster) -> None:
    queues = [servers.queue_on(0, f"n{n}-") for n in range(300)]
    conveyor = Conveyor(servers.url, "w")
    try:
        for queue in queues:
            await conveyor.create_group(queue)
        for _ in range(3):
            reading = asyncio.create_task(conveyor.read(queues, 1, 30_000))

            async def waits() -> bool:
                info = await command(servers.primaries[0], "INFO", "clients")
                return bool(info["blocked_clients"] == len(queues))

            await wait_for(waits, WAIT_S, "it waits for all")
            await entry(servers, queues[7])
            assert [one.queue for one in await reading] == [queues[7]]
        opened = bytes(await command(servers.primaries[0], "CLIENT", "LIST"))
        assert opened.count(b" name=duly-worker-w ") <= len(queues) + 5
    finally:
        await conveyor.close()


async def test_a_new_owner_that_takes_no_writes_yet_is_trouble_of_its_own_keys(
    servers: TestCluster, client: ClusterClient
) -> None:
    source, target, _ = servers.primaries
    key = servers.queue_on(0)
    slot = key_slot(key.encode())
    await command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", await node_id(source))
    await command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", await node_id(target))
    await command(target, "CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(PrimaryAwayError):
        await call(client, "SET", key, "1", timeout_s=5)
