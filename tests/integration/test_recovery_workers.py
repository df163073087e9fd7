"""Workers that die, hang, or take their time: nothing is lost, and nothing is taken from the living."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from processes import Processes
from store_rig import opened, query
from waiting import wait_for

from duly.actors import old_claims, reaper
from duly.nodes.client import Task
from duly.storage import keys

SUPPORT = Path(__file__).parents[1] / "support"
_NOISE_S = 10.0  # beyond what is promised, for a machine on which others are at work
KEYED: dict[str, Any] = {"concurrency_key": "k", "concurrency_limit": 1}
NOW_AGAIN = {"kind": "fixed", "delay": 0.05, "jitter": 0}


@pytest.fixture
def short_life(monkeypatch: pytest.MonkeyPatch) -> int:
    """Workers are lost after 1.5 s in place of 10 s: a pause of this process is no death.

    Ask for it before the node, which trusts nobody's silence for as long after its start.
    """
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 1_500)
    monkeypatch.setattr(reaper, "_ROUND_S", 0.05)
    monkeypatch.setattr(old_claims, "_EVERY_S", 0.1)
    return 1_500


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as worker:
        yield worker


async def ended(node: RunningNode, task_id: object, status: str) -> Task:
    async def over() -> Task | None:
        task = await node.client.get(str(task_id))
        return task if task.status == status else None

    return await wait_for(over, 60, f"the task is {status}")


async def outcomes(node: RunningNode, task_id: object) -> list[str]:
    """Oldest first."""
    return [run.outcome async for run in node.client.runs(str(task_id))][::-1]


async def test_a_killed_worker_is_noticed_within_12_s(
    node: RunningNode, processes: Processes, redis_url: str, fresh_database: str
) -> None:
    """A real one, by its real liveness: one task is retried, and one must not start twice.

    With the first loss its concurrency key is free: by the records, the next task of the key is claimed.
    `tests/simulation/test_keys_freed.py` has the bound in virtual time, where nothing stalls.
    """
    environment = {
        "DULY_REDIS_URL": redis_url,
        "DULY_TEST_API": node.url,
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
    }
    worker = processes.python("-m", "duly", "worker", "chaos_worker:worker", env=environment)
    later = {"kind": "fixed", "delay": 3600}
    again = (await node.client.submit("hang", max_retries=1, backoff=later, **KEYED)).id
    never = (await node.client.submit("hang", on_lost="fail", max_retries=5)).id

    async def both_run() -> bool:
        started = await node.call("GET", f"/v1/tasks/{never}")
        async with HandWorker(redis_url) as hand:
            pending = await hand.pending()
        return started.body["started_at"] is not None and pending == 2

    await wait_for(both_run, 60, "both tasks run")
    behind = (await node.client.submit("hang", **KEYED)).id
    assert (await node.client.get(behind)).status == "pending"
    async with opened(fresh_database) as db:
        worker.kill9()
        ((killed_at,),) = await query(db, "select clock_timestamp()")
    killed = time.monotonic()

    async def lost() -> bool:
        return await outcomes(node, again) == ["lost"]

    await wait_for(lost, 60, "the loss is recorded")
    assert time.monotonic() - killed < 12 + _NOISE_S
    freed = await ended(node, behind, "running")
    freed_s = (freed.updated_at - killed_at).total_seconds()
    assert 0 < freed_s < 12 + _NOISE_S, f"the key was free after {freed_s:.1f} s"
    assert await ended(node, never, "failed")
    assert await outcomes(node, never) == ["lost"]
    task = await node.client.get(again)
    assert (task.status, task.retry_count) == ("pending", 1)


async def test_a_task_that_kills_its_workers_ends_failed(
    short_life: int, node: RunningNode, redis_url: str
) -> None:
    task_id = (await node.client.submit("poison", max_retries=2, backoff=NOW_AGAIN)).id
    for n in range(3):
        async with HandWorker(redis_url, f"hand-{n}") as hand:
            await hand.live(short_life)
            taken = await hand.take()
            assert (taken.id, taken.fields["attempt"]) == (str(task_id), str(n + 1))
            await hand.die()
    await ended(node, task_id, "failed")
    assert await outcomes(node, task_id) == ["lost"] * 3
    async with HandWorker(redis_url) as hand:
        await hand.nothing_left()


async def test_a_task_that_always_fails_ends_failed(node: RunningNode, hand: HandWorker) -> None:
    await hand.live()
    task_id = (await node.client.submit("poison", max_retries=2, backoff=NOW_AGAIN)).id
    for _ in range(3):
        await hand.report(await hand.take(), "failed", error='"no"')
    await ended(node, task_id, "failed")
    assert await outcomes(node, task_id) == ["failed"] * 3
    await hand.nothing_left()


async def test_a_hung_worker_has_its_time_and_no_more(
    short_life: int, node: RunningNode, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_claims, "_TIMEOUT_SLACK_MS", 100)
    task_id = (await node.client.submit("t", timeout=1, max_retries=0)).id
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hand.beat, 0.05, short_life)
        taken = await hand.take()
        began = time.monotonic()
        await ended(node, task_id, "failed")
        assert time.monotonic() - began > 1
        assert await outcomes(node, task_id) == ["timed_out"]
        await hand.report(taken)  # it comes back to life

        async def stale() -> bool:
            return node.context.vitals.stale_reports == 1

        await wait_for(stale, 30, "its report is stale")
        await hand.nothing_left()
        tasks.cancel_scope.cancel()
    assert (await node.client.get(task_id)).status == "failed"


async def test_c23_a_long_run_of_a_live_worker_is_left_alone(
    short_life: int, node: RunningNode, hand: HandWorker
) -> None:
    """For many times the grace, the liveness and the reaper's period."""
    task_id = (await node.client.submit("t", timeout=3600)).id
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hand.beat, 0.05, short_life)
        taken = await hand.take()

        async def held_long() -> bool:
            rows = await hand.call(
                "XPENDING", keys.tasks("default"), keys.WORKERS_GROUP, "-", "+", 10
            )
            assert [row[0] for row in rows] == [taken.entry_id]
            return bool(rows[0][2] > 2000 * node.settings.dispatch_grace_s)

        await wait_for(held_long, 60, "it has run for long")
        assert await hand.may_begin(taken)
        assert await hand.read() == []
        await hand.report(taken)
        await ended(node, task_id, "completed")
        tasks.cancel_scope.cancel()
    assert await outcomes(node, task_id) == ["completed"]
    assert node.context.vitals.republished == 0


async def test_workers_that_are_gone_are_forgotten(
    short_life: int, node: RunningNode, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "_FORGET_IDLE_MS", 200)
    await node.client.submit("t")
    async with HandWorker(redis_url, "gone") as gone, HandWorker(redis_url, "here") as here:
        await gone.live(short_life)
        await gone.report(await gone.take())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.beat, 0.05, short_life)
            await here.join()

            async def only_here() -> bool:
                rows = await here.call("XINFO CONSUMERS", keys.tasks("default"), keys.WORKERS_GROUP)
                names = [row[1].decode() for row in rows]
                return [name for name in names if not name.startswith(keys.MARK)] == ["here"]

            await wait_for(only_here, 60, "the one that is gone is forgotten")
            tasks.cancel_scope.cancel()


async def test_c22_reports_with_another_token_change_nothing(
    node: RunningNode, hand: HandWorker
) -> None:
    await hand.live()
    task_id = (await node.client.submit("t")).id
    taken = await hand.take()
    for token in ("0", str(int(taken.fields["token"]) + 1), "9" * 18):
        other = taken._replace(fields={**taken.fields, "token": token}, entry_id=b"1-1")
        await hand.report(other)
    await hand.report(taken._replace(fields={"id": "nobody", "token": "x"}, entry_id=b"1-1"))

    async def stale() -> bool:
        return node.context.vitals.stale_reports == 3

    await wait_for(stale, 30, "three stale reports")
    task = await node.client.get(task_id)
    assert (task.status, task.version) == ("running", int(taken.fields["token"]))
    assert await hand.may_begin(taken)
    await hand.report(taken, result="17")
    assert (await ended(node, task_id, "completed")).result == 17
    await hand.nothing_left()


async def test_a_report_nested_too_deep_fails_its_own_task(
    node: RunningNode, hand: HandWorker
) -> None:
    await hand.live()
    deep = (await node.client.submit("t")).id
    taken = await hand.take()
    await hand.report(taken, result="[" * 50_000 + "]" * 50_000)
    fine = (await node.client.submit("t")).id
    await hand.report(await hand.take(), result="[]")
    await ended(node, fine, "completed")

    async def over() -> bool:
        return (await node.client.get(deep)).status in ("completed", "failed")

    await wait_for(over, 30, "the other has ended too")
    await hand.nothing_left()
