"""Tasks with `on_lost = fail` between a real node and a real worker: PostgreSQL grants each token one start."""

from typing import Any

from node_rig import RunningNode
from redis.asyncio import Redis
from waiting import wait_for
from worker_rig import running

from duly.nodes.worker import Context, Worker
from duly.storage import keys
from duly.storage.redis import call, connect


def recording(redis_url: str, api: str) -> tuple[Worker, list[int]]:
    """A worker, and the tokens that its handler has run."""
    worker = Worker(redis_url, api=api)
    ran: list[int] = []

    @worker.task("t")
    async def handle(ctx: Context) -> str:
        ran.append(ctx.token)
        return "done"

    return worker, ran


async def test_a_granted_start_runs_and_completes(node: RunningNode, redis_url: str) -> None:
    worker, ran = recording(redis_url, node.url)
    async with running(worker):
        task = await node.client.submit("t", on_lost="fail")

        async def completed() -> bool:
            return (await node.client.get(task.id)).status == "completed"

        await wait_for(completed, 30, "the task is completed")
    assert ran == [1]


async def test_what_another_has_started_is_dropped_without_a_report(
    node: RunningNode, redis_url: str
) -> None:
    task = await node.running_task("t", on_lost="fail")
    start = {"token": task.version, "start_id": "another's", "worker": "another"}
    assert (await node.call("POST", f"/v1/tasks/{task.id}/start", start)).status == 200
    worker, ran = recording(redis_url, node.url)
    redis: Redis = connect(redis_url, name="test")

    async def entries() -> Any:
        return await call(redis, "XLEN", keys.tasks("default"), timeout_s=10)

    async def published() -> bool:
        return bool(await entries() == 1)

    async def gone() -> bool:
        return bool(await entries() == 0)

    try:
        await wait_for(published, 30, "the task is in the stream")
        async with running(worker):
            await wait_for(gone, 30, "the worker has dropped it")
    finally:
        await redis.aclose()
    assert ran == []
    after = await node.client.get(task.id)
    assert (after.status, after.version, after.worker) == ("running", task.version, "another")
