"""Queues on the primaries of a Redis Cluster: tasks, and all that is done to queues and tasks."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from node_rig import RunningNode, running_node
from redis_cluster import TestCluster, cluster
from store_rig import query
from stores_rig import running_stores
from waiting import wait_for
from worker_rig import running

import duly

WAIT_S = 60


@pytest.fixture
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestCluster]:
    async with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def queues(servers: TestCluster) -> list[str]:
    """One on each primary."""
    return [servers.queue_on(n) for n in range(3)]


@pytest.fixture
async def node(
    fresh_database: str, servers: TestCluster, redis_url: str
) -> AsyncIterator[RunningNode]:
    async with running_node(fresh_database, servers.url, lease_redis_urls=(redis_url,)) as one:
        yield one


def counting_worker(
    servers: TestCluster, queues: list[str], name: str, begun: list[str]
) -> duly.Worker:
    worker = duly.Worker(servers.url, queues=queues, concurrency=8, id=name)

    @worker.task("t")
    async def work(ctx: duly.Context) -> None:
        begun.append(ctx.id)

    return worker


async def ended(node: RunningNode, count: int) -> None:
    async def all_ended() -> bool:
        return await node.count("finished_tasks") >= count

    await wait_for(all_ended, WAIT_S, f"{count} tasks have ended", poll_s=0.05)


async def test_tasks_of_queues_on_all_primaries_run_once(
    node: RunningNode, servers: TestCluster, queues: list[str]
) -> None:
    """Of two workers each reads all queues, with fewer slots than queues at times."""
    begun: list[str] = []
    first = counting_worker(servers, queues, "first", begun)
    second = counting_worker(servers, list(reversed(queues)), "second", begun)
    async with running(first), running(second):
        ids: list[UUID] = []
        for _ in range(10):
            for queue in queues:
                ids += await node.client.submit_batch([{"type": "t", "queue": queue}] * 20)
        await ended(node, len(ids))
    assert Counter(begun) == Counter(map(str, ids))
    rows = await query(
        node.context.db,
        "select count(*), count(distinct task_id) from runs where outcome = 'completed'",
    )
    assert tuple(rows[0]) == (len(ids), len(ids))
    workers = (await node.call("GET", "/v1/workers")).body["items"]
    assert workers == []  # both have left


async def test_a_lone_task_does_not_wait_for_the_end_of_a_read(
    node: RunningNode, servers: TestCluster, queues: list[str]
) -> None:
    """A blocked read of one queue does not hold up what comes in another."""
    begun: list[str] = []
    async with running(counting_worker(servers, queues, "one", begun)):
        took: list[float] = []
        for count, queue in enumerate(queues * 3, 1):
            began = asyncio.get_running_loop().time()
            await node.client.submit("t", queue=queue)
            await ended(node, count)
            took.append(asyncio.get_running_loop().time() - began)
    assert sorted(took)[len(took) // 2] < 0.9, took  # a read waits for 1 s (node) and 2 s (worker)


async def test_a_worker_of_any_primary_is_told_to_stop(
    node: RunningNode, servers: TestCluster, queues: list[str]
) -> None:
    """Its control channel may be listened to at another server than the one that is told."""
    stopped: list[str] = []
    worker = duly.Worker(servers.url, queues=queues, id="w")

    @worker.task("long")
    async def work(ctx: duly.Context) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append(ctx.id)

    async with running(worker):
        tasks = [await node.client.submit("long", queue=queue) for queue in queues]
        for task in tasks:

            async def runs(task_id: UUID = task.id) -> bool:
                return (await node.client.get(task_id)).worker == "w" or await _held(node) >= 3

            await wait_for(runs, WAIT_S, "the task runs")
        for task in tasks:
            assert (await node.client.cancel(task.id)).status == "cancelled"
        await wait_for(lambda: len(stopped) == 3, WAIT_S, "all three were told")


async def _held(node: RunningNode) -> int:
    workers = (await node.call("GET", "/v1/workers")).body["items"]
    return int(sum(one["held"] for one in workers))


async def test_priorities_rates_and_pauses_of_queues(
    node: RunningNode, servers: TestCluster, queues: list[str]
) -> None:
    paused, limited, ordered = queues
    await put(node, limited, rate=20, burst=1)
    for queue in (paused, ordered):
        await put(node, queue, paused=True)
    controls = node.context.controls
    await wait_for(
        lambda: {paused, ordered} <= set(controls.paused) and controls.of(limited).rate,
        WAIT_S, "the node knows",
    )  # fmt: skip
    begun: list[int] = []
    worker = duly.Worker(servers.url, queues=queues, concurrency=1, id="one")

    @worker.task("t")
    async def work(ctx: duly.Context, payload: int) -> None:
        begun.append(payload)

    await node.client.submit("t", 100, queue=paused)
    for priority in (3, 9, 0, 6):
        await node.client.submit("t", priority, queue=ordered, priority=priority)
    async with running(worker):
        await put(node, ordered, paused=False)
        await ended(node, 4)
        assert begun == [9, 6, 3, 0]
        began = asyncio.get_running_loop().time()
        await node.client.submit_batch([{"type": "t", "payload": 50, "queue": limited}] * 21)
        await ended(node, 25)
        assert asyncio.get_running_loop().time() - began > 0.9
        assert 100 not in begun
        await put(node, paused, paused=False)
        await ended(node, 26)
    assert begun[-1] == 100
    listed = {one["queue"]: one for one in (await node.call("GET", "/v1/queues")).body["items"]}
    assert set(queues) <= set(listed)


async def put(node: RunningNode, queue: str, **controls: object) -> None:
    assert (await node.call("PUT", f"/v1/queues/{queue}", controls)).status == 200


async def test_a_dead_workers_tasks_are_given_to_another(
    node: RunningNode, servers: TestCluster, queues: list[str]
) -> None:
    """Its sign of life is on one primary; its tasks are on all."""
    code = (
        "import asyncio, sys, duly\n"
        f"worker = duly.Worker({servers.url!r}, queues={queues!r}, id='dies')\n"
        "@worker.task('t')\n"
        "async def work(ctx):\n"
        "    await asyncio.sleep(600)\n"
        "worker.run()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for queue in queues:
            backoff = {"kind": "fixed", "delay": 0}
            await node.client.submit("t", queue=queue, backoff=backoff)

        async def holds_all() -> bool:
            return await _held(node) == 3

        await wait_for(holds_all, WAIT_S, "the worker holds all three")
    finally:
        process.kill()
        await process.wait()
    async with running(counting_worker(servers, queues, "lives", [])):
        await ended(node, 3)
    rows = await query(node.context.db, "select outcome, count(*) from runs group by 1 order by 1")
    assert [tuple(row) for row in rows] == [("completed", 3), ("lost", 3)]


async def test_doctor_looks_at_each_primary(
    node: RunningNode, servers: TestCluster, fresh_database: str, redis_url: str
) -> None:
    settings = {"DULY_DATABASE_URL": fresh_database, "DULY_REDIS_URL": servers.url}
    leases = {"DULY_LEASE_REDIS_URLS": redis_url}

    async def doctor(environ: dict[str, str]) -> tuple[bytes, bytes, int | None]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "duly", "doctor", "--json", env=os.environ | environ,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        said, wrong = await process.communicate()
        return said, wrong, process.returncode

    said, _, _ = await doctor(settings | leases)
    found = [json.loads(line) for line in said.splitlines()]
    bad = {one["about"] for one in found if one["level"] == "bad"}
    assert bad <= {"PostgreSQL"}, "that of the tests would forget all in a crash"
    primaries = {one["about"] for one in found if one["about"].startswith("Redis 127.0.0.1:")}
    assert primaries == {f"Redis 127.0.0.1:{one.port}" for one in servers.primaries}
    assert found[-1]["said"] == "1 alive"
    _, wrong, code = await doctor(settings)
    assert code
    assert b"lease_redis_urls" in wrong


async def test_several_stores_share_a_cluster(
    two_stores: list[str], servers: TestCluster, queues: list[str], redis_url: str
) -> None:
    """Each reads all reports, and takes those of its own tasks."""
    begun: list[str] = []
    async with (
        running_stores(two_stores, servers.url, lease_redis_urls=(redis_url,)) as node,
        running(counting_worker(servers, queues, "w", begun)),
    ):
        ids = [(await node.client.submit("t", queue=queue)).id for queue in queues * 10]
        assert {node.store_of(one) for one in ids} == {0, 1}
        for one in ids:

            async def completed(task_id: UUID = one) -> bool:
                return (await node.client.get(task_id)).status == "completed"

            await wait_for(completed, WAIT_S, "each is recorded in its store")
        assert (await node.call("GET", "/readyz")).body["parts"]["primaries"]["ok"]
    assert Counter(begun) == Counter(map(str, ids))


async def test_the_state_of_each_primary_is_told(node: RunningNode) -> None:
    parts = (await node.ready()).body["parts"]
    assert parts["primaries"] == {"ok": True, "detail": None, "failing": {}}
    stats = await node.call("GET", "/v1/stats")
    assert stats.status == 200, json.dumps(stats.body)
