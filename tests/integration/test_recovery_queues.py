"""One queue whose keys are unusable, or gone, does not hold up the others."""

import logging
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from waiting import wait_for
from worker_rig import running

import duly
from duly.actors import reaper, report_queues
from duly.storage import keys

TASKS = 50
PLACES = {
    "tasks": keys.tasks,
    "inflight": keys.inflight,
    "entries": keys.entries,
    "reports": keys.reports,
}


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url, queue="bad") as worker:
        yield worker


def sdk_worker(url: str, queue: str) -> duly.Worker:
    worker = duly.Worker(url, [queue], concurrency=10, id=f"sdk-{queue}")

    @worker.task("t")
    async def work(ctx: duly.Context) -> None: ...

    return worker


async def completed(node: RunningNode, queue: str) -> None:
    async def done() -> bool:
        return await node.count(f"finished_tasks where queue = '{queue}'") == TASKS

    await wait_for(done, 60, f"every task of {queue} has ended", poll_s=0.1)
    assert await node.count("runs where outcome <> 'completed'") == 0


@pytest.mark.parametrize("place", PLACES)
async def test_a_wrong_typed_key_stops_its_own_queue_only(
    node: RunningNode,
    redis_url: str,
    hand: HandWorker,
    caplog: pytest.LogCaptureFixture,
    place: str,
) -> None:
    key = PLACES[place]("bad")
    await hand.call("SET", key, "what is this?")
    caplog.set_level(logging.INFO)
    async with running(sdk_worker(redis_url, "good")):
        for queue in ("bad", "good"):
            batch = [{"type": "t", "queue": queue}] * TASKS
            await node.client.submit_batch(batch)
        await completed(node, "good")

        async def shown() -> bool:
            answer = await node.call("GET", "/readyz")
            parts = answer.body["parts"]
            found = [work for work in parts["queues"]["failing"] if "bad" in work]
            return answer.status == 200 and parts["redis"]["ok"] and bool(found)

        await wait_for(shown, 60, "readiness names the queue, and the node is ready all the same")
        lines = [record for record in caplog.records if "bad" in record.getMessage()]
        assert 1 <= len(lines) < 10, lines
    assert await hand.call("GET", key) == b"what is this?"
    await hand.call("DEL", key)
    async with running(sdk_worker(redis_url, "bad")):
        await completed(node, "bad")

        async def clear() -> bool:
            answer = await node.call("GET", "/readyz")
            return answer.status == 200 and answer.body["parts"]["queues"]["ok"]

        await wait_for(clear, 60, "readiness is clear again")


@pytest.fixture
def soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues and workers are forgotten in no time; ask for it before the node."""
    monkeypatch.setattr(reaper, "_FORGET_QUEUE_S", 0.5)
    monkeypatch.setattr(reaper, "_FORGET_IDLE_MS", 0)
    monkeypatch.setattr(reaper, "_ROUND_S", 0.1)
    monkeypatch.setattr(report_queues, "_EVERY_S", 0.2)
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 100)


async def test_an_idle_queue_is_forgotten_and_comes_back_when_it_is_used(
    soon_forgotten: None, node: RunningNode, hand: HandWorker, caplog: pytest.LogCaptureFixture
) -> None:
    async def forgotten() -> bool:
        names = await hand.call("KEYS", "duly:{bad}*")
        return not names and not await hand.call("SISMEMBER", keys.QUEUES, "bad")

    for _ in range(3):
        task_id = (await node.client.submit("t", queue="bad")).id
        await hand.live()
        await hand.report(await hand.take())

        async def over(one: UUID = task_id) -> bool:
            return (await node.client.get(one)).status == "completed"

        await wait_for(over, 60, "it ran")
        await hand.die()
        await wait_for(forgotten, 60, "the queue is forgotten")
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
