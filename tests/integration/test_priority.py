"""What waits for capacity goes out by priority, 9 first, whether memory or the store alone knows of it."""

from datetime import UTC, datetime

import pytest
from hand_worker import HandWorker, Taken
from node_rig import running_node
from waiting import wait_for

WINDOW = 20


async def test_priority_9_goes_first(fresh_database: str, redis_url: str) -> None:
    async with (
        running_node(fresh_database, redis_url, window_floor=WINDOW) as node,
        HandWorker(redis_url) as worker,
    ):
        await node.client.submit_batch([{"type": "first", "priority": 0}] * WINDOW)
        await full(worker)
        now = datetime.now(UTC).isoformat()
        later = [{"type": "later", "run_at": now, "priority": p} for p in (0, 9, 5, 1, 7)]
        ids = await node.client.submit_batch(later)
        priority = dict(zip(map(str, ids), (0, 9, 5, 1, 7), strict=True))
        await wait_for(lambda: node.context.vitals.ready_entries == 5, 30, "all wait")
        await worker.read(WINDOW)
        taken: list[Taken] = []
        while len(taken) < len(later):
            taken.append(await worker.take())
    assert [priority[one.id] for one in taken] == [9, 7, 5, 1, 0]


async def test_the_store_is_asked_for_the_best_first(
    fresh_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue with more due than a node holds."""
    monkeypatch.setattr("duly.actors.ready.FULL", 40)
    monkeypatch.setattr("duly.actors.ready.BROUGHT", 40)
    monkeypatch.setattr("duly.actors.ready.LOW", 10)
    monkeypatch.setattr("duly.actors.ready._MAKES_WAY", 4)
    monkeypatch.setattr("duly.actors.refills.BROUGHT", 40)
    async with (
        running_node(fresh_database, redis_url, window_floor=WINDOW) as node,
        HandWorker(redis_url) as worker,
    ):
        now = datetime.now(UTC).isoformat()
        many = [{"type": "t", "run_at": now, "priority": n % 10} for n in range(300)]
        ids = await node.client.submit_batch(many)
        priority = {str(one): n % 10 for n, one in enumerate(ids)}
        await full(worker)
        assert node.context.vitals.ready_entries <= 40
        taken: list[Taken] = []
        while len(taken) < len(many):
            one = await worker.take()
            await worker.report(one)
            taken.append(one)
    order = [priority[one.id] for one in taken][100:]
    # But for what was on its way already, each part of the order has the priorities of its place.
    assert [sum(order[at : at + 50]) / 50 for at in (0, 50, 100, 150)] == pytest.approx(
        [5.4, 3.6, 2.0, 0.4], abs=1.2
    ), order


async def full(worker: HandWorker) -> None:
    """Wait until the window is full."""

    async def is_full() -> bool:
        return (await worker.sizes())[0] == WINDOW

    await wait_for(is_full, 30, "the window is full")
