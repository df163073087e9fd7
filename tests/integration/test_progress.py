"""What workers tell of their attempts is shown: how far they are, and what they have no handler for."""

import asyncio
from typing import Any

import pytest
from node_rig import RunningNode
from waiting import wait_for
from worker_rig import running

import duly


async def reason(node: RunningNode, task: duly.Task) -> dict[str, Any]:
    found: dict[str, Any] = (await node.client.explain(task.id)).reasons[0]
    return found


async def test_how_far_an_attempt_is(node: RunningNode, redis_url: str) -> None:
    worker, go_on = duly.Worker(redis_url, id="w"), asyncio.Event()

    @worker.task("t")
    async def count(ctx: duly.Context) -> None:
        ctx.progress(2, 8, "x" * 300)
        await go_on.wait()

    async with running(worker):
        task = await node.client.submit("t")

        async def told() -> bool:
            return (await reason(node, task)).get("progress") == 0.25

        await wait_for(told, 60, "its progress")
        said = await reason(node, task)
        assert said["progress_text"] == "x" * 200
        assert said["message"].endswith("it says that 25% is done.")
        go_on.set()
        over = await task.wait(60)
    assert over.status == "completed"
    assert (await reason(node, task))["code"] == "finished"


async def test_a_type_without_handler_is_shown_with_its_worker(
    node: RunningNode, redis_url: str
) -> None:
    async with running(duly.Worker(redis_url, id="w")):
        task = await node.client.submit("no.such")

        async def shown() -> bool:
            workers = await node.client.workers()
            return [one.unknown_types for one in workers] == [("no.such",)]

        await wait_for(shown, 60, "the type")
        waiting = await node.client.get(task.id)
        assert (waiting.status in ("pending", "running"), waiting.retry_count) == (True, 0)
        await node.client.cancel(task.id)


@pytest.mark.parametrize("given", [(-0.1, None), (1.1, None), (5, 4), (float("nan"), None)])
def test_a_share_is_from_0_to_1(given: tuple[float, float | None]) -> None:
    ctx = duly.Context(
        id="a", type="t", queue="q", token=1, attempt=1, due_us=0, deadline=0.0, worker="w"
    )
    with pytest.raises(ValueError, match="done is 0 to total"):
        ctx.progress(*given)
    ctx.progress(0)
    ctx.progress(1)
    assert ctx.progress_made == (1.0, None)
