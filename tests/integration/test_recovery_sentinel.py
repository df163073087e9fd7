"""C32: a failover by Sentinel, with the old master still up."""

import logging
import time
from collections.abc import AsyncIterator
from uuid import UUID

import anyio
import pytest
from node_rig import RunningNode, running_node
from redis.exceptions import RedisError
from sentinels import SentinelSetup, command, is_master
from store_rig import query
from waiting import wait_for
from worker_rig import running

import duly
from duly.storage.redis import TROUBLE, call, connect

PER_BATCH = 20
BATCHES_PER_S = 10


@pytest.fixture
async def setup(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SentinelSetup]:
    made = SentinelSetup(tmp_path_factory.mktemp("sentinel"))
    try:
        await made.start()
        yield made
    finally:
        made.stop()


def sdk_worker(url: str) -> duly.Worker:
    worker = duly.Worker(url, concurrency=50, id="sdk")

    @worker.task("t")
    async def work(ctx: duly.Context) -> None: ...

    return worker


async def all_finished(node: RunningNode, ids: list[UUID]) -> bool:
    rows = await query(node.context.db, "select 1 from finished_tasks where id = any($1)", ids)
    return len(rows) == len(ids)


async def finished(node: RunningNode) -> int:
    return await node.count("finished_tasks")


async def test_c32_work_goes_on_with_the_new_master(
    fresh_database: str, setup: SentinelSetup, caplog: pytest.LogCaptureFixture
) -> None:
    """200 tasks/s; the time from promotion to dispatching is in the log, its bound is generous."""
    caplog.set_level(logging.INFO)
    ids: list[UUID] = []
    go_on = True
    async with (
        running_node(fresh_database, setup.url, redis_timeout_s=2.0) as node,
        running(sdk_worker(setup.url)),
        anyio.create_task_group() as tasks,
    ):

        async def submit() -> None:
            while go_on:
                ids.extend(await node.client.submit_batch([{"type": "t"}] * PER_BATCH))
                await anyio.sleep(1 / BATCHES_PER_S)

        tasks.start_soon(submit)
        await wait_for(lambda: finished(node), 60, "the first has ended")
        await setup.fail_over()
        promoted = time.monotonic()
        ids += (later := [(await node.client.submit("t")).id])
        await wait_for(lambda: all_finished(node, later), 60, "dispatching goes on")
        logging.getLogger("test").info("dispatched %.1f s later", time.monotonic() - promoted)

        async def demoted() -> bool:
            return not await is_master(setup.servers[0])

        await wait_for(demoted, 60, "the old master is a replica", poll_s=0.1, ignore=(RedisError,))
        before = await finished(node)
        await wait_for(lambda: _more(node, before + 200), 60, "and on")
        go_on = False

        await wait_for(lambda: all_finished(node, ids), 60, "every task has ended", poll_s=0.1)
        rows = await query(
            node.context.db,
            "select count(*), count(distinct task_id) from runs where outcome = 'completed'",
        )
        assert tuple(rows[0]) == (len(ids), len(ids))
        assert await node.count("finished_tasks") == len(ids)
    lines = [one for one in caplog.records if one.name.startswith("duly")]
    assert len(lines) < 150, "a hot loop"


async def _more(node: RunningNode, count: int) -> bool:
    return await finished(node) >= count


async def test_c32_a_master_that_became_a_replica_is_left(setup: SentinelSetup) -> None:
    """Also by scripts, and by a connection that is kept."""
    client = connect(setup.url, name="test")
    try:
        await call(client, "SET", "k", "1", timeout_s=5)
        await setup.fail_over()

        async def demoted() -> bool:
            # The Sentinels may be at it too, and close connections by the way.
            await command(setup.servers[0].url, "REPLICAOF", "127.0.0.1", setup.servers[1].port)
            return not await is_master(setup.servers[0])

        await wait_for(demoted, 60, "the old master is a replica", ignore=(RedisError,))

        async def written() -> bool:
            await call(
                client, "EVAL", "return redis.call('SET', KEYS[1], '2')", 1, "k", timeout_s=5
            )
            return True

        await wait_for(written, 30, "the new master is found", ignore=TROUBLE)
        assert await command(setup.servers[1].url, "GET", "k") == b"2"
    finally:
        await client.aclose()
