"""What is of the cluster in memory alone."""

import time
from typing import Any

import pytest

import duly
from duly.testing import MemoryCluster, NotInMemory
from duly.testing.harness import Harness


@pytest.mark.parametrize(
    "options",
    [
        {"misfire_grace": 60},
        {"region": "north"},
        {"on_success": {"type": "thanks"}},
        {"on_failure": {"type": "sorry"}},
        {"after": ["01b8dac5-b400-7000-b3e0-47f158ee7ad8"]},
        {"schedule": {"every": 60, "pause_after": 3}},
        {"schedule": {"every": 60, "expect_within": 300}},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_options_that_it_does_not_know_are_refused(options: dict[str, Any]) -> None:
    async with MemoryCluster() as cluster:
        with pytest.raises(NotInMemory, match=r"duly\.testing\.Cluster"):
            await cluster.client.submit("note", **options)


async def test_calls_that_it_does_not_answer_are_refused() -> None:
    async with MemoryCluster() as cluster:
        client = cluster.client
        task = await client.submit("note", delay=60)
        for call in (
            client.pause(task.id), client.resume(task.id), client.run_now(task.id),
            client.update(task.id, priority=1), client.update_queue("default", paused=True),
            client.workers(), client.explain(task.id),
        ):  # fmt: skip
            with pytest.raises(NotInMemory):
                await call
        with pytest.raises(NotInMemory, match="a list by paused"):
            await client.list(paused=True)


async def test_the_fixture_is_a_cluster_in_memory(duly_memory_cluster: Harness) -> None:
    async with duly_memory_cluster as cluster:
        assert (await cluster.client.submit("note")).status == "pending"


async def test_a_year_of_an_hourly_task_takes_no_year() -> None:
    worker, ran = duly.Worker("redis://nowhere:1/0"), [0]

    @worker.task("tick")
    async def tick(ctx: duly.Context) -> None:
        ran[0] += 1

    async with MemoryCluster() as cluster:
        await cluster.start(worker)
        await cluster.client.submit("tick", schedule=duly.Every(3600, start_at=cluster.now))
        began = time.process_time()
        await cluster.advance(days=365)
    assert ran == [365 * 24 + 1]
    assert time.process_time() - began < 120
