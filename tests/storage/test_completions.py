"""Attempts that a user's transaction has completed: whatever a node was about to record, it records that."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from store_rig import NOW, claimed, opened, query

from duly.actors.recording import record
from duly.storage import claims, slots
from duly.storage.claims import Claimed, Ended, Outcome, Settlement
from duly.storage.database import Database


@pytest.fixture
async def db(fresh_database: str) -> AsyncIterator[Database]:
    async with opened(fresh_database) as made:
        yield made


@pytest.fixture
async def user(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    yield connection
    await connection.close()


async def complete(user: Any, task: Claimed, result: str = '{"a": 1}') -> None:
    await user.execute("select duly.complete($1, $2, $3, 'w1')", task.id, task.token, result)


def ended(task: Claimed, outcome: Outcome, **more: Any) -> Ended:
    return Ended(task.id, task.token, outcome, "w2", NOW, NOW, **more)


@pytest.mark.parametrize("schedule", [None, '{"every": 60}'])
@pytest.mark.parametrize("outcome", ["completed", "failed", "lost", "timed_out", "snoozed"])
async def test_whatever_is_reported_it_has_completed(
    db: Database, user: Any, outcome: Outcome, schedule: str | None
) -> None:
    (task,) = await claimed(db, schedule=schedule)
    await complete(user, task)
    report = ended(task, outcome, result="5", error='"no"', delay_s=1.0)
    done = await record(db, [report], NOW + timedelta(seconds=1))
    assert done.pairs == {(task.id, task.token)}
    (run,) = await query(db, "select outcome, verdict, result, error from runs")
    assert tuple(run) == ("completed", "completed", '{"a": 1}', None)
    if schedule is None:
        (finished,) = await query(db, "select status, result, error from finished_tasks")
        assert tuple(finished) == ("completed", '{"a": 1}', None)
    else:
        (waits,) = await query(db, "select status, completion from tasks")
        assert tuple(waits) == ("pending", None)
    assert [one.outcome for one in done.measured] == ["completed"]
    assert (await record(db, [report], NOW)).pairs == set()


@pytest.mark.parametrize("again", [True, False])
async def test_what_was_decided_before_it_completed_is_decided_anew(
    db: Database, user: Any, again: bool
) -> None:
    (task,) = await claimed(db)
    lost = ended(task, "lost")
    attempt = (await claims.attempts(db, [(task.id, task.token)]))[task.id]
    decision = Settlement(lost, attempt, NOW if again else None, counts=again)
    await complete(user, task)
    assert await claims.settle(db, [decision], NOW) == []
    assert (await record(db, [lost], NOW)).pairs == {(task.id, task.token)}
    (run,) = await query(db, "select outcome from runs")
    assert run["outcome"] == "completed"


async def test_an_end_that_is_recorded_first_makes_the_commit_fail(db: Database, user: Any) -> None:
    (task,) = await claimed(db)
    transaction = user.transaction()
    await transaction.start()
    await complete(user, task)
    # Nobody waits for the transaction, however long it is open.
    assert (await record(db, [ended(task, "lost")], NOW)).pairs == {(task.id, task.token)}
    with pytest.raises(asyncpg.PostgresError) as caught:
        await transaction.commit()
    assert caught.value.sqlstate == "DU002"
    assert await query(db, "select from completing") == []


async def test_it_is_not_published_again_and_the_reaper_sees_it(db: Database, user: Any) -> None:
    (task,) = await claimed(db)
    assert len(await claims.running(db, [(task.id, task.token)])) == 1
    await complete(user, task)
    assert await claims.running(db, [(task.id, task.token)]) == []
    (row,) = await slots.running_since(db, range(256), NOW + timedelta(seconds=60), 10, None)
    assert row.completion is not None
