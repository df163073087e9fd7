"""What is of the cluster on servers alone."""

from datetime import UTC, datetime

import pytest

import duly
from duly.testing import Cluster, TestServers


async def test_clusters_on_one_pair_of_servers_follow_each_other(
    duly_cluster: Cluster, duly_servers: TestServers
) -> None:
    now = datetime(2040, 2, 29, 12, tzinfo=UTC)
    async with duly_cluster as first:
        await first.client.submit("note", delay=60)
        with pytest.raises(RuntimeError, match="one at a time"):
            await Cluster(duly_servers).__aenter__()
    async with Cluster(duly_servers, now, batch_limit=1) as second:
        assert await second.client.list() == []
        task = await second.client.submit("note")
        assert task.created_at == second.now == now
        with pytest.raises(duly.TooLarge):
            await second.client.submit_batch([{"type": "a"}, {"type": "b"}])


async def test_what_is_paused_holds_nothing_up(duly_cluster: Cluster) -> None:
    worker, ran = duly.Worker("redis://nowhere:1/0", queues=["default", "slow"]), []

    @worker.task("note")
    async def note(ctx: duly.Context, payload: str) -> None:
        ran.append(payload)

    async with duly_cluster as cluster:
        await cluster.start(worker)
        await cluster.client.update_queue("slow", paused=True)
        await cluster.client.submit("note", "queue", queue="slow", delay=60)
        task = await cluster.client.submit("note", "task", delay=60)
        await cluster.client.pause(task.id)
        await cluster.client.submit("note", "other", delay=120)
        await cluster.advance(hours=1)
        assert ran == ["other"]
        await cluster.client.update_queue("slow", paused=False)
        await cluster.client.resume(task.id)
        await cluster.settle()
    assert sorted(ran) == ["other", "queue", "task"]


async def test_a_start_is_confirmed_where_it_must_be(duly_cluster: Cluster) -> None:
    worker, ran = duly.Worker("redis://nowhere:1/0"), []

    @worker.task("once")
    async def once(ctx: duly.Context) -> None:
        ran.append(ctx.attempt)

    async with duly_cluster as cluster:
        await cluster.start(worker)
        await cluster.client.submit("once", on_lost="fail", delay=60)
        await cluster.advance(hours=1)
    assert ran == [1]
