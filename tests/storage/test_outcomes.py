"""The fenced ends of an attempt: recorded once, by the token that runs."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
from store_rig import NOW, again, claimed, ended, outcomes, over, query, statuses

from duly.storage import claims, explain, tasks
from duly.storage.claims import Ended, Outcome
from duly.storage.database import Database

LATER = NOW + timedelta(seconds=5)


async def complete(db: Database, reports: Sequence[Ended], now: datetime) -> set[tuple[UUID, int]]:
    """The (id, token) of the successes that were recorded."""
    return {(one.id, one.token) for one in await claims.complete(db, reports, now)}


async def test_a_success_moves_its_task_and_adds_its_run(db: Database) -> None:
    (task,) = await claimed(db, payload='{"a": 1e2}')
    report = ended(task, result='{"n": 1.50}')
    assert await complete(db, [report], LATER) == {(task.id, task.token)}
    row = (await tasks.get(db, [task.id]))[task.id]
    assert (row.status, row.result, row.finished_at) == ("completed", '{"n": 1.50}', LATER)
    assert (row.version, row.worker, row.started_at) == (task.token, "w1", NOW)
    assert await outcomes(db, task.id) == ["completed"]


async def test_a_stale_token_changes_nothing(db: Database) -> None:
    (task,) = await claimed(db)
    for token in (task.token - 1, task.token + 1):
        stale = ended(task, token=token)
        assert await complete(db, [stale], LATER) == set()
        assert await claims.settle(db, [over(stale)], LATER) == []
        assert await claims.settle(db, [again(stale, LATER)], LATER) == []
        assert await claims.attempts(db, [(task.id, token)]) == {}
        assert not await claims.start(db, task.id, token, "s", "w", LATER)
    assert await statuses(db, [task.id]) == ["running"]
    assert await outcomes(db, task.id) == []


async def test_a_report_repeated_in_a_batch_and_after_it_counts_once(db: Database) -> None:
    some = await claimed(db, 3)
    reports = [ended(task) for task in some]
    recorded = await complete(db, [*reports, *reports], LATER)
    assert len(recorded) == 3
    assert await complete(db, reports, LATER) == set()
    assert await outcomes(db, some[0].id) == ["completed"]


async def test_an_unknown_task_is_stale(db: Database) -> None:
    (task,) = await claimed(db)
    assert await complete(db, [ended(task, id=uuid4())], LATER) == set()


async def test_two_recorders_with_the_same_reports_record_each_once(db: Database) -> None:
    some = await claimed(db, 100)
    reports = [ended(task) for task in some]
    one, two = await asyncio.gather(complete(db, reports, LATER), complete(db, reports, LATER))
    assert not one & two
    assert len(one | two) == 100
    assert len(await query(db, "select from runs")) == 100


async def test_an_end_wins_against_another_end(db: Database) -> None:
    some = await claimed(db, 60)
    reports = [ended(task) for task in some]
    losses = [again(ended(task, "lost"), LATER) for task in some]
    completed, lost = await asyncio.gather(
        complete(db, reports, LATER), claims.settle(db, losses, LATER)
    )
    assert len(completed) + len(lost) == 60
    assert len(await query(db, "select from runs")) == 60


async def test_a_retry_waits_again_under_the_same_occurrence(db: Database) -> None:
    (task,) = await claimed(db)
    failure = ended(task, "failed", error='"no"')
    (settled,) = await claims.settle(db, [again(failure, LATER)], LATER)
    assert settled.due is not None
    assert (settled.due.next_run_at, settled.due.version) == (LATER, task.token)
    row = (await tasks.get(db, [task.id]))[task.id]
    assert (row.status, row.retry_count, row.error) == ("pending", 1, '"no"')
    assert (row.occurrence, row.worker, row.owner) == (NOW, None, None)
    assert await outcomes(db, task.id) == ["failed"]
    assert await complete(db, [ended(task)], LATER) == set()  # it came too late


async def test_what_a_person_retries_keeps_its_occurrence_whatever_times_it_is_given(
    db: Database,
) -> None:
    (task,) = await claimed(db)
    await claims.settle(db, [over(ended(task, "failed"))], LATER)
    await tasks.retry(db, task.id, LATER)
    for due in (NOW, LATER):  # the first looks as if it had never begun
        await tasks.patch(db, task.id, tasks.Change(due=due), None, LATER)
    row = (await tasks.get(db, [task.id]))[task.id]
    assert (row.occurrence, row.next_run_at) == (NOW, LATER)


async def test_a_snooze_leaves_no_run_and_burns_no_retry(db: Database) -> None:
    (task,) = await claimed(db)
    (settled,) = await claims.settle(
        db, [again(ended(task, "snoozed"), LATER, counts=False)], LATER
    )
    assert settled.due is not None
    row = (await tasks.get(db, [task.id]))[task.id]
    assert (row.status, row.retry_count, row.next_run_at) == ("pending", 0, LATER)
    assert await outcomes(db, task.id) == []


@pytest.mark.parametrize("next_outcome", ["snoozed", "failed"])
async def test_why_it_was_given_back_is_known_until_the_next_end_of_an_attempt(
    db: Database, next_outcome: Outcome
) -> None:
    (task,) = await claimed(db)

    async def put_off(outcome: Outcome, error: str | None) -> tuple[str | None, str | None]:
        again_claimed = (
            "update tasks set status = 'running', owner = 'n', claimed_at = now(), version = version + 1"
            " returning version"
        )
        ((token,),) = await query(db, again_claimed)
        end = ended(task._replace(token=token), outcome, error=error)
        assert await claims.settle(db, [again(end, LATER, counts=False)], LATER)
        (row,) = (await tasks.get(db, [task.id])).values()
        standing = await explain.standing(db, task.id)
        assert standing is not None
        return row.error, standing.given_back

    failed, why = '{"type": "E"}', '{"type": "given_back", "message": "no"}'
    await claims.settle(db, [again(ended(task), LATER)], LATER)
    assert await put_off("failed", failed) == (failed, None)
    assert await put_off("snoozed", None) == (failed, None)
    assert await put_off("snoozed", why) == (why, "no")
    assert await put_off(next_outcome, None) == (None, None)


async def test_the_last_failure_ends_the_task(db: Database) -> None:
    (task,) = await claimed(db)
    last = ended(task, "timed_out", error='{"type": "timed_out"}')
    assert (await claims.settle(db, [over(last)], LATER))[0].due is None
    row = (await tasks.get(db, [task.id]))[task.id]
    assert (row.status, row.error, row.finished_at) == ("failed", '{"type": "timed_out"}', LATER)
    assert await outcomes(db, task.id) == ["timed_out"]


async def test_a_mixed_batch_is_one_statement(db: Database) -> None:
    retried, last, snoozed = await claimed(db, 3)
    decisions = [
        again(ended(retried, "lost"), LATER),
        over(ended(last, "failed")),
        again(ended(snoozed, "snoozed"), LATER, counts=False),
    ]
    settled = {one.id: one.due is None for one in await claims.settle(db, decisions, LATER)}
    assert settled == {retried.id: False, last.id: True, snoozed.id: False}
    assert len(await query(db, "select from runs")) == 2


async def test_a_token_is_granted_one_start(db: Database) -> None:
    (task,) = await claimed(db)
    assert await claims.start(db, task.id, task.token, "s1", "w1", NOW)
    assert await claims.start(db, task.id, task.token, "s1", "w1", LATER)
    assert not await claims.start(db, task.id, task.token, "s2", "w2", LATER)
    row = (await tasks.get(db, [task.id]))[task.id]
    assert (row.started_at, row.worker) == (NOW, "w1")


@pytest.mark.parametrize("first", ["cancel", "complete"])
async def test_a_cancel_and_a_report_exclude_each_other(db: Database, first: str) -> None:
    (task,) = await claimed(db)
    if first == "cancel":
        assert await tasks.cancel(db, task.id, LATER) is not None
        assert await complete(db, [ended(task)], LATER) == set()
        assert not await claims.start(db, task.id, task.token, "s", "w", LATER)
    else:
        assert len(await complete(db, [ended(task)], LATER)) == 1
        assert await tasks.cancel(db, task.id, LATER) is None
    assert await outcomes(db, task.id) == ["cancelled" if first == "cancel" else "completed"]
