"""A Redis Cluster under load that loses primaries, and whose slots move: each task has one outcome."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError
from redis_cluster import TestCluster, cluster, command, cut_off, move_slot, node_id
from store_rig import query
from waiting import wait_for
from worker_rig import running

import duly
from duly.storage import keys

WAIT_S = 90
PER_BATCH = 5
BATCHES_PER_S = 10


class Load:
    """Tasks, submitted steadily to all queues."""

    def __init__(self, node: RunningNode, queues: list[str]) -> None:
        self.node = node
        self.queues = queues
        self.ids: list[UUID] = []
        self.enough = False

    async def submit(self) -> None:
        """Until `enough`; each batch whole, as one that is cut off may have been accepted and not be known."""
        while not self.enough:
            for queue in self.queues:
                batch = [{"type": "t", "queue": queue, "max_retries": 20}] * PER_BATCH
                self.ids += await self.node.client.submit_batch(batch)
            await asyncio.sleep(1 / BATCHES_PER_S)

    async def ended(self, queue: str) -> int:
        """How many of a queue have ended."""
        rows = await query(
            self.node.context.db, "select count(*) from finished_tasks where queue = $1", queue
        )
        return int(rows[0][0])

    async def goes_on(self, queue: str, what: str) -> None:
        """Wait until more of a queue have ended than now."""
        before = await self.ended(queue)

        async def more() -> bool:
            return await self.ended(queue) >= before + 2 * PER_BATCH

        await wait_for(more, WAIT_S, f"{what}: {queue} goes on", poll_s=0.05)


def sdk_worker(url: str, queues: list[str], name: str) -> duly.Worker:
    worker = duly.Worker(url, queues=queues, concurrency=50, id=name)

    @worker.task("t")
    async def work(ctx: duly.Context) -> None:
        await asyncio.sleep(0.02)

    return worker


@asynccontextmanager
async def loaded(
    database: str, servers: TestCluster, redis_url: str, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Load]:
    """A node and two workers with load; at the end each task has completed once."""
    caplog.set_level(logging.INFO)
    queues = [servers.queue_on(n) for n in range(3)]
    settings: dict[str, Any] = {"redis_timeout_s": 2.0, "lease_redis_urls": (redis_url,)}
    async with (
        running_node(database, servers.url, **settings) as node,
        running(sdk_worker(servers.url, queues, "all")),
        running(sdk_worker(servers.url, queues[:1], "one")),
    ):
        load = Load(node, queues)
        submitting = asyncio.create_task(load.submit())
        try:
            for queue in queues:
                await load.goes_on(queue, "at the start")
            yield load
        finally:
            load.enough = True
            await submitting

        async def all_ended() -> bool:
            return await node.count("finished_tasks") >= len(load.ids)

        await wait_for(all_ended, WAIT_S, "every task has ended", poll_s=0.1)
        rows = await query(
            node.context.db,
            "select count(*), count(distinct task_id) from runs where outcome = 'completed'",
        )
        assert tuple(rows[0]) == (len(load.ids), len(load.ids))
        states = await query(
            node.context.db, "select status, count(*) from finished_tasks group by 1"
        )
        assert [tuple(one) for one in states] == [("completed", len(load.ids))]
    said = Counter(one.getMessage() for one in caplog.records if one.name.startswith("duly"))
    assert sum(said.values()) < 400, f"a hot loop: {said.most_common(5)}"


async def test_a_killed_primary_whose_replica_had_not_heard_of_the_last_writes(
    fresh_database: str, tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the replica does not know is published again; the other queues go on meanwhile."""
    async with (
        cluster(tmp_path, replicas=1) as servers,
        loaded(fresh_database, servers, redis_url, caplog) as load,
    ):
        old, new = servers.primaries[0], servers.replicas[0]
        await cut_off(old, new)
        unserved = servers.queue_on(0, "unserved")
        load.ids += await load.node.client.submit_batch([{"type": "t", "queue": unserved}] * 10)

        async def published() -> bool:
            return int(await command(old, "XLEN", keys.tasks(unserved))) == 10

        await wait_for(published, WAIT_S, "they are where the replica does not see them")
        before = len(load.ids)
        await wait_for(lambda: len(load.ids) > before + 100, WAIT_S, "more that will be lost")
        old.stop()
        for queue in load.queues[1:]:
            await load.goes_on(queue, "while a primary is away")
        await wait_for(
            lambda: servers.promoted(new),
            WAIT_S,
            "the replica is promoted",
            ignore=(RedisError,),
        )
        promoted = time.monotonic()
        for queue in load.queues:
            await load.goes_on(queue, "after the failover")
        logging.getLogger("test").info("all go on %.1f s later", time.monotonic() - promoted)
        vitals = load.node.context.vitals
        await wait_for(lambda: vitals.republished >= 10, WAIT_S, "what was lost is published again")
        async with running(sdk_worker(servers.url, [unserved], "late")):

            async def ended() -> bool:
                return await load.ended(unserved) == 10

            await wait_for(ended, WAIT_S, "they are served at last")
    assert any("lost its data" in one.getMessage() for one in caplog.records)


async def test_a_failover_by_order(
    fresh_database: str, tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        cluster(tmp_path, replicas=1) as servers,
        loaded(fresh_database, servers, redis_url, caplog) as load,
    ):
        await command(servers.replicas[0], "CLUSTER", "FAILOVER")
        await wait_for(
            lambda: servers.promoted(servers.replicas[0]), WAIT_S, "the replica is promoted",
            ignore=(RedisError,),
        )  # fmt: skip
        for queue in load.queues:
            await load.goes_on(queue, "after the failover")


async def one_by_one(queue: str, servers: TestCluster) -> None:
    source, target, other = servers.primaries
    assert await move_slot(keys.tasks(queue), source, target, [other]) >= 2


async def at_once(queue: str, servers: TestCluster) -> None:
    source, target, _ = servers.primaries
    slot, to = key_slot(keys.tasks(queue).encode()), await node_id(target)
    try:
        await command(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to)
    except ResponseError as error:
        pytest.skip(f"the server has no such command: {error}")

    async def owns(server: PrivateValkey = target) -> bool:
        slots = await command(server, "CLUSTER SLOTS")
        return any(one[0] <= slot <= one[1] and one[2][1] == target.port for one in slots)

    await wait_for(owns, WAIT_S, "the slot has moved")


@pytest.mark.parametrize("move", [one_by_one, at_once])
async def test_a_slot_that_moves_under_load(
    fresh_database: str,
    tmp_path: Path,
    redis_url: str,
    caplog: pytest.LogCaptureFixture,
    move: Callable[[str, TestCluster], Any],
) -> None:
    async with (
        cluster(tmp_path) as servers,
        loaded(fresh_database, servers, redis_url, caplog) as load,
    ):
        await move(load.queues[0], servers)
        assert await command(servers.primaries[1], "EXISTS", keys.reports(load.queues[0]))
        for queue in load.queues:
            await load.goes_on(queue, "after the move")
        await load.goes_on(load.queues[0], "and still")


@pytest.mark.parametrize("away", [0, 1, 2])
async def test_a_primary_that_is_away_stops_its_own_queues_alone(
    fresh_database: str, tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture, away: int
) -> None:
    """Whatever else is on it: names of queues, members, signs of life. It comes back without its data."""
    async with (
        cluster(tmp_path) as servers,
        loaded(fresh_database, servers, redis_url, caplog) as load,
    ):
        servers.primaries[away].stop()
        others = [queue for n, queue in enumerate(load.queues) if n != away]
        for _ in range(3):
            for queue in others:
                await load.goes_on(queue, "while a primary is away")

        async def told() -> dict[str, Any] | None:
            parts = (await load.node.call("GET", "/readyz")).body["parts"]
            return parts if not parts["primaries"]["ok"] else None

        parts = await wait_for(told, WAIT_S, "readyz tells")
        assert str(servers.primaries[away].port) in parts["primaries"]["detail"]
        # The nodes' registrations are there, or they are not: else this node is no worse than others.
        registers = away != servers.place("{nodes}")

        async def ready_or_not() -> bool:
            answer = await load.node.call("GET", "/readyz")
            return bool(answer.status == (200 if registers else 503))

        await wait_for(ready_or_not, WAIT_S, "readyz is 200 unless all work is hit")
        if away != servers.place(keys.QUEUES):
            seen = (await load.node.call("GET", "/v1/queues")).body["items"]
            assert set(load.queues) <= {one["queue"] for one in seen}
            assert (await load.node.call("GET", "/v1/workers")).status == 200
        servers.primaries[away].start()
        for queue in load.queues:
            await load.goes_on(queue, "after its return")


async def test_a_primary_that_hangs_does_not_hold_up_the_others(
    fresh_database: str, tmp_path: Path, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It swallows what is sent to it, and has no replica; it goes on later, with all it had."""
    async with (
        cluster(tmp_path) as servers,
        loaded(fresh_database, servers, redis_url, caplog) as load,
    ):
        servers.primaries[1].pause()
        try:
            for _ in range(2):
                for queue in (load.queues[0], load.queues[2]):
                    await load.goes_on(queue, "while a primary hangs")
        finally:
            servers.primaries[1].resume()
        for queue in load.queues:
            await load.goes_on(queue, "after it")
