"""Bugs planted in a real node, each with the moment that it waits for: the checker names what broke.

The same moments without the bugs break nothing.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bug_bench import BugBench
from chaos_lab.mutations import BUGS
from processes import Processes
from waiting import wait_for

pytestmark = pytest.mark.chaos


@pytest.fixture
async def bench(
    fresh_database: str, redis_url: str, processes: Processes, tmp_path: Path
) -> AsyncIterator[BugBench]:
    async with BugBench(fresh_database, redis_url, processes, tmp_path) as made:
        yield made


# The moments


async def changed_unheard(bench: BugBench) -> str:
    """A task is put off, and the node that holds it in its wheel does not hear of it."""
    task_id = await bench.submit(ahead_s=5)
    await bench.sql("update slots set owner = 'another'")
    await bench.change(task_id, ahead_s=8)
    await bench.finish(await bench.take())
    return task_id


async def reported_late(bench: BugBench) -> str:
    """A worker reports again for an attempt that has ended, while the next one is at work."""
    task_id = await bench.submit("flaky")
    first = await bench.take()
    await bench.finish(first, "failed")
    second = await bench.take()
    await bench.finish(first)
    await bench.reports_read()
    await bench.finish(second)
    return task_id


async def asked_twice_to_start(bench: BugBench) -> str:
    """Two workers want to start one attempt of a task that must not start twice."""
    task_id = await bench.submit("once")
    taken = await bench.worker.take(60)
    for start_id in ("one", "two"):
        asked = {"token": int(taken.fields["token"]), "start_id": start_id, "worker": start_id}
        if await bench.ask("POST", f"/v1/tasks/{task_id}/start", asked) == 200:
            bench.began(taken)
    await bench.finish(taken)
    return task_id


async def killed_after_the_answer(bench: BugBench) -> str:
    """The node dies as soon as it has said that a task is accepted."""
    task_id = await bench.submit()
    assert bench.node is not None
    bench.node.kill9()
    await bench.start_node()
    return task_id


async def overran(bench: BugBench) -> str:
    """Two occurrences come due while the one before them runs."""
    task_id = await bench.submit("periodic", ahead_s=0.5, every_s=1.0, runs=2)
    taken = await bench.take()

    async def passed() -> bool:
        return time.time() > float(taken.fields["due"]) / 1000 + 2.5

    await wait_for(passed, 60, "two more have come due")
    await bench.finish(taken)
    await bench.finish(await bench.take())
    return task_id


# The bugs


async def test_without_a_bug_nothing_is_broken(bench: BugBench) -> None:
    await bench.start_node()
    cancelled = await bench.submit(ahead_s=5)
    await bench.cancel(cancelled)
    await bench.submit(ahead_s=1)
    await bench.finish(await bench.take())
    for moment in (changed_unheard, reported_late, asked_twice_to_start, overran):
        await bench.ended(await moment(bench))
    task_id = await killed_after_the_answer(bench)
    await bench.finish(await bench.take())
    await bench.ended(task_id)
    await bench.worker.nothing_left()
    assert await bench.broken() == {}


async def test_a_claim_without_the_version_check(bench: BugBench) -> None:
    await bench.start_node("claim_any_version")
    await bench.ended(await changed_unheard(bench))
    assert "early" in await bench.broken()


async def test_a_report_without_the_token_check(bench: BugBench) -> None:
    await bench.start_node("record_any_token")
    await bench.ended(await reported_late(bench))
    assert "outcome" in await bench.broken()


async def test_a_start_that_is_granted_twice(bench: BugBench) -> None:
    await bench.start_node("start_again")
    await bench.ended(await asked_twice_to_start(bench))
    assert "once" in await bench.broken()


async def test_an_answer_before_the_commit(bench: BugBench) -> None:
    await bench.start_node("answer_before_commit")
    await killed_after_the_answer(bench)
    assert "lost" in await bench.broken()


async def test_a_cancel_that_does_nothing(bench: BugBench) -> None:
    await bench.start_node("cancel_nothing")
    await bench.cancel(await bench.submit(ahead_s=5))
    await bench.finish(await bench.take())
    assert {"cancelled", "twice"} <= (await bench.broken()).keys()


async def test_a_clock_that_is_ahead(bench: BugBench) -> None:
    await bench.start_node("clock_ahead")
    task_id = await bench.submit(ahead_s=8)
    await bench.finish(await bench.take())
    await bench.ended(task_id)
    assert "early" in await bench.broken()


async def test_a_skip_that_leaves_no_record(bench: BugBench) -> None:
    await bench.start_node("skip_unseen")
    await bench.ended(await overran(bench))
    assert await bench.broken() == {"grid": 1}


async def test_an_attempt_that_is_taken_for_the_verdict(bench: BugBench) -> None:
    await bench.start_node("judge_too_early")
    await bench.ended(await reported_late(bench))
    assert await bench.broken() == {"verdicts": 1}


async def test_a_claim_that_is_never_published(bench: BugBench) -> None:
    await bench.start_node("publish_nothing")
    await bench.submit()

    async def claimed() -> bool:
        return bool(await bench.sql("select count(*) from tasks where status = 'running'"))

    await wait_for(claimed, 60, "it is claimed")
    assert "stuck" in await bench.broken()


def test_every_bug_is_planted_here() -> None:
    text = Path(__file__).read_text()
    assert [bug for bug in BUGS if f'start_node("{bug}")' not in text] == []
