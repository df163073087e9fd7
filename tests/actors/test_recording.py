"""A batch of reports on a real store: one that cannot be stored is the trouble of its own task only."""

import random
from collections.abc import AsyncIterator
from typing import Literal, get_args

import anyio
import pytest
from store_rig import NOW, claimed, ended, opened, outcomes, query, statuses

from duly.actors.recording import Recorded, record
from duly.storage import tasks
from duly.storage.claims import Ended
from duly.storage.database import Database


@pytest.fixture
async def db(fresh_database: str) -> AsyncIterator[Database]:
    async with opened(fresh_database) as pool:
        yield pool


_Two = Literal["completed", "failed"]

UNSTORABLE = {
    "nul": '"a\\u0000b"',
    "lone surrogate": '"\\ud800"',
    "number": "1e999999",
    "deep": "[" * 50_000 + "]" * 50_000,
}


@pytest.mark.parametrize("text", UNSTORABLE.values(), ids=UNSTORABLE.keys())
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_one_unstorable_report_fails_its_own_task_only(
    db: Database, text: str, outcome: str
) -> None:
    some = await claimed(db, 9)
    reports = [ended(task, result='"fine"') for task in some]
    bad = some[4]
    reports[4] = (
        ended(bad, result=text) if outcome == "completed" else ended(bad, "failed", error=text)
    )
    recorded, waiting, *_ = await record(db, reports, NOW)
    assert recorded == {(task.id, task.token) for task in some}
    assert waiting == []
    assert (await statuses(db, [task.id for task in some])).count("completed") == 8
    row = (await tasks.get(db, [bad.id]))[bad.id]
    assert row.status == "failed"
    assert row.error is not None
    assert "invalid_report" in row.error
    assert await outcomes(db, bad.id) == ["failed"]


async def test_a_batch_of_all_kinds(db: Database) -> None:
    done, again, over, snoozed, stale = await claimed(db, 5)
    reports = [
        ended(done), ended(again, "lost"), ended(over, "failed", may_retry=False),
        ended(snoozed, "snoozed", delay_s=5.0), ended(stale, token=99), ended(done),
        ended(done, "failed"),
    ]  # fmt: skip
    recorded, waiting, *_ = await record(db, reports, NOW)
    assert {task_id for task_id, _ in recorded} == {done.id, again.id, over.id, snoozed.id}
    assert {one.due.id for one in waiting} == {again.id, snoozed.id}
    assert {one.slot_owner for one in waiting} == {"node-a"}
    ids = [one.id for one in (done, again, over, snoozed, stale)]
    assert await statuses(db, ids) == ["completed", "pending", "failed", "pending", "running"]
    assert len(await query(db, "select from runs")) == 3
    assert await record(db, reports, NOW) == (set(), [], [], set())


async def test_c22_a_loss_that_was_seen_before_a_success_changes_nothing(db: Database) -> None:
    (task,) = await claimed(db)
    lost = ended(task, "lost")
    await record(db, [ended(task)], NOW)
    before = (await tasks.get(db, [task.id]))[task.id]
    assert await record(db, [lost], NOW) == (set(), [], [], set())
    assert (await tasks.get(db, [task.id]))[task.id] == before
    assert await outcomes(db, task.id) == ["completed"]


async def test_nothing_to_record(db: Database) -> None:
    assert await record(db, [], NOW) == (set(), [], [], set())


async def test_two_batches_of_the_same_reports_do_not_lock_each_other_out(db: Database) -> None:
    """As when a worker sends reports again whose answer was lost, and both are read: in whatever order."""
    chance = random.Random(1)
    outcomes_of_two: tuple[_Two, ...] = get_args(_Two)
    for outcome in outcomes_of_two * 10:
        tasks = await claimed(db, 300, max_retries=0)
        batches = [[ended(task, outcome) for task in chance.sample(tasks, 300)] for _ in range(2)]
        found: list[Recorded] = []

        async def one(batch: list[Ended], found: list[Recorded] = found) -> None:
            found.append(await record(db, batch, NOW))

        async with anyio.create_task_group() as both:
            for batch in batches:
                both.start_soon(one, batch)
        assert sum(len(some.pairs) for some in found) == 300
