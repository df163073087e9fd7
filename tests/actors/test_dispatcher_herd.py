"""The firing path on real servers: a herd at one instant, and a wake that was lost."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from node_rig import RunningNode, running_node
from waiting import wait_for
from worker_rig import running

from duly.nodes.worker import Context, Worker

HERD = 5_000
LATER = 200
_AHEAD_S = 8.0  # enough to submit them all on a busy machine
_LATE_S = 5.0  # half a second is promised; others may be at work on this machine


class Starts:
    """When each task started, and when it was due."""

    def __init__(self) -> None:
        self.late_s: dict[str, float] = {}
        self.twice: list[str] = []

    def note(self, ctx: Context) -> None:
        if str(ctx.id) in self.late_s:
            self.twice.append(str(ctx.id))
        self.late_s[str(ctx.id)] = (datetime.now(UTC) - ctx.due).total_seconds()

    async def reach(self, count: int) -> None:
        await wait_for(lambda: len(self.late_s) >= count, 120, f"{count} starts")


def noting_worker(redis_url: str, starts: Starts) -> Worker:
    worker = Worker(redis_url, queues=["herd", "lost"], concurrency=200)

    @worker.task("note")
    async def note(ctx: Context, payload: object) -> None:
        starts.note(ctx)

    return worker


async def submit(node: RunningNode, count: int, **fields: Any) -> list[str]:
    tasks = [{"type": "note", **fields}] * count
    async with node.http.post("/v1/tasks/batch", json={"tasks": tasks}) as answer:
        assert answer.status == 201, (await answer.text())[:500]
        ids: list[str] = (await answer.json())["ids"]
        return ids


async def test_c51_a_herd_at_one_instant_starves_nobody(
    fresh_database: str, redis_url: str
) -> None:
    starts = Starts()
    async with (
        running_node(fresh_database, redis_url) as node,
        running(noting_worker(redis_url, starts)),
    ):
        due = datetime.now(UTC) + timedelta(seconds=_AHEAD_S)
        herd = await submit(node, HERD, queue="herd", run_at=due.isoformat())
        after = (due + timedelta(seconds=1)).isoformat()
        later = await submit(node, LATER, queue="herd", run_at=after, priority=6)
        other = await submit(node, LATER, queue="lost", run_at=after)
        assert datetime.now(UTC) < due, "too slow a machine: submitted too late"
        total = HERD + 2 * LATER
        await starts.reach(total)
        await wait_for(lambda: node.context.vitals.recorded >= total, 60, "all are recorded")
        assert await node.count("runs") == total
        assert node.context.vitals.lost == node.context.vitals.republished == 0
    assert starts.twice == []
    assert min(starts.late_s.values()) > -0.05, "started early"  # two clocks are compared
    # Those of a better priority, and those of another queue, do not wait for the whole herd.
    slowest_s = max(starts.late_s[task_id] for task_id in herd)
    for some in (later, other):
        assert max(starts.late_s[task_id] for task_id in some) < max(_LATE_S, slowest_s)


async def test_a_task_whose_wake_was_lost_starts_half_a_second_later_at_most(
    fresh_database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts()
    async with (
        running_node(fresh_database, redis_url, sweep_every_s=0.5) as node,
        running(noting_worker(redis_url, starts)),
    ):
        await submit(node, 1, queue="lost")  # the queue and its worker are known from here on
        await starts.reach(1)

        async def lose(*_: object) -> None:
            """Every wake of the node gets lost."""

        monkeypatch.setattr("duly.actors.wakes.wake", lose)
        for number in range(2, 6):
            await submit(node, 1, queue="lost")
            await starts.reach(number)
            await asyncio.sleep(0.13)  # another place between two sweeps
    late_s = sorted(starts.late_s.values())
    assert late_s[-1] < _LATE_S, late_s
    assert late_s[-1] > 0.05, "the wakes were not lost at all"
