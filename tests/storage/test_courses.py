"""Periodic tasks on a real PostgreSQL: an end and what follows it are one statement, and fenced."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from store_rig import (
    ME,
    NOW,
    attempt,
    ended,
    new_task,
    own_all,
    query,
)

from duly.actors.recording import record
from duly.storage import claims, courses, submitting, tasks
from duly.storage.audit import Note
from duly.storage.claims import Claimed, Settlement
from duly.storage.courses import CourseRow, Move, Place
from duly.storage.database import Database
from duly.storage.slots import DueRow

HOUR = timedelta(hours=1)
WHY = '{"type": "overrun"}'
SCHEDULE = '{"every": 3600.0}'


def periodic(**changes: Any) -> submitting.NewTask:
    """Made an hour before its first occurrence, which is due at `NOW`."""
    plain = new_task(
        created_at=NOW - HOUR, schedule=SCHEDULE, interval=HOUR, following=NOW + HOUR, max_retries=1
    )
    return plain._replace(**changes)


async def store(db: Database, **changes: Any) -> DueRow:
    new = periodic(**changes)
    (answer,) = await submitting.submit(db, [new], NOW, NOW)
    assert answer.slot is not None
    return DueRow(new.id, answer.slot, new.due, 0, new.priority, new.queue)


async def running(db: Database, **changes: Any) -> Claimed:
    row = await store(db, **changes)
    claim = await claims.claim(db, ME, [row], await own_all(db), NOW)
    return claim.tasks[0]


async def row_of(db: Database, task_id: UUID) -> CourseRow:
    return (await courses.courses(db, [task_id]))[task_id]


async def runs_of(db: Database, task_id: UUID) -> list[tuple[Any, ...]]:
    rows = await query(
        db,
        "select occurrence, outcome, token, attempt from runs where task_id = $1 "
        "order by token, recorded_at",
        task_id,
    )
    return [tuple(row) for row in rows]


async def test_a_success_goes_on_to_the_next_occurrence_and_records_what_it_skips(
    db: Database,
) -> None:
    task = await running(db)
    now = NOW + 2.5 * HOUR
    recorded, waiting, *_ = await record(db, [ended(task, result="1")], now)
    assert recorded == {(task.id, task.token)}
    ((due, owner),) = waiting
    assert (due.next_run_at, due.version, owner) == (NOW + 3 * HOUR, task.token, ME)
    row = await row_of(db, task.id)
    assert (row.status, row.occurrence, row.following) == (
        "pending",
        NOW + 3 * HOUR,
        NOW + 4 * HOUR,
    )
    assert (row.done_until, row.runs_done, row.begun) == (NOW + 2 * HOUR, 1, False)
    assert await runs_of(db, task.id) == [
        (NOW, "completed", 1, 1), (NOW + HOUR, "skipped", 1, 1), (NOW + 2 * HOUR, "skipped", 1, 1),
    ]  # fmt: skip
    assert await record(db, [ended(task)], now) == (set(), [], [], set())  # a repeat is stale


async def test_c25_two_recorders_and_repeats_end_an_occurrence_once(db: Database) -> None:
    some = [await running(db) for _ in range(20)]
    reports = [ended(task) for task in some]
    losses = [ended(task, "lost", may_retry=False) for task in some]
    await asyncio.gather(*(record(db, said, NOW) for said in (reports, reports, losses, losses)))
    rows = await query(db, "select task_id, occurrence, outcome from runs")
    assert len(rows) == len(some)
    states = await query(db, "select distinct status, occurrence, runs_done from tasks")
    assert [tuple(row) for row in states] == [("pending", NOW + HOUR, 1)]


async def test_a_retry_keeps_its_occurrence_and_the_last_failure_does_not(db: Database) -> None:
    task = await running(db)
    ((due, _),) = (await record(db, [ended(task, "failed", delay_s=0.0)], NOW)).waiting
    row = await row_of(db, task.id)
    assert (row.occurrence, row.begun, row.following) == (NOW, True, None)
    # However late: what has begun is not skipped.
    late = NOW + 5 * HOUR
    (again,) = (await claims.claim(db, ME, [due], await own_all(db), late)).tasks
    assert (again.occurrence, again.retry_count) == (NOW, 1)
    await record(db, [ended(again, "failed", error='"no"')], late)
    row = await row_of(db, task.id)
    assert (row.occurrence, row.begun, row.runs_done) == (NOW + 6 * HOUR, False, 1)
    assert [run[1] for run in await runs_of(db, task.id)] == ["failed", "failed", *["skipped"] * 5]
    (stored,) = (await tasks.get(db, [task.id])).values()
    assert (stored.retry_count, stored.error) == (0, '"no"')


@pytest.mark.parametrize("outcome", ["lost", "timed_out"])
async def test_a_loss_that_must_not_start_again_goes_on_with_the_next(
    db: Database, outcome: claims.Outcome
) -> None:
    task = await running(db, on_lost="fail")
    await record(db, [ended(task, outcome)], NOW)
    row = await row_of(db, task.id)
    assert (row.status, row.occurrence) == ("pending", NOW + HOUR)
    assert [run[1] for run in await runs_of(db, task.id)] == [outcome]


async def test_a_result_that_cannot_be_stored_fails_its_occurrence_only(db: Database) -> None:
    task = await running(db)
    await record(db, [ended(task, result='"a\\u0000b"')], NOW)
    row = await row_of(db, task.id)
    assert (row.status, row.occurrence) == ("pending", NOW + HOUR)
    assert [run[1] for run in await runs_of(db, task.id)] == ["failed"]


async def test_a_late_one_is_not_claimed(db: Database) -> None:
    row = await store(db)
    epochs = await own_all(db)
    assert (await claims.claim(db, ME, [row], epochs, NOW + HOUR)).tasks == []
    assert await claims.expire(db, [row], NOW + HOUR) == claims.Expired([], [])
    in_time = NOW + HOUR - timedelta(microseconds=1)
    assert len((await claims.claim(db, ME, [row], epochs, in_time)).tasks) == 1


async def test_a_change_of_the_schedule_meanwhile_is_decided_anew(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await running(db)
    read = claims.attempts
    other = tasks.Change(schedule='{"every": 7200.0}', interval=2 * HOUR, may_run=True)

    async def read_and_changed(*args: Any) -> Any:
        answer = await read(*args)
        monkeypatch.setattr(claims, "attempts", read)
        changed = await tasks.patch(db, task.id, other, None, NOW)
        assert changed is not None
        assert (changed.changed, changed.row.version) == (True, task.token)
        return answer

    monkeypatch.setattr(claims, "attempts", read_and_changed)
    assert (await record(db, [ended(task)], NOW))[0] == {(task.id, task.token)}
    row = await row_of(db, task.id)
    assert row.occurrence == NOW + HOUR  # of the grid of two hours from its beginning
    assert await runs_of(db, task.id) == [(NOW, "completed", 1, 1)]


async def test_settle_changes_nothing_under_another_schedule_or_token(db: Database) -> None:
    task = await running(db)
    place = Place(NOW + HOUR, NOW + HOUR, skipped=[(NOW + HOUR, WHY)])
    good = attempt(task, schedule=SCHEDULE)
    for wrong in (good._replace(schedule='{"every": 1.0}'), good._replace(overrun="queue")):
        decision = Settlement(ended(task), wrong, place=place, ran=True)
        assert await claims.settle(db, [decision], NOW) == []
    stale = Settlement(ended(task, token=9), good, place=place, ran=True)
    assert await claims.settle(db, [stale], NOW) == []
    assert await runs_of(db, task.id) == []


async def test_a_schedule_that_is_over_is_completed_with_its_last_result(db: Database) -> None:
    task = await running(db, schedule='{"every": 3600.0, "max_runs": 1}')
    await record(db, [ended(task, result='{"n": 1}')], NOW)
    (row,) = (await tasks.get(db, [task.id])).values()
    assert (row.status, row.result, row.finished_at) == ("completed", '{"n": 1}', NOW)


async def test_many_late_tasks_share_the_bites_of_a_statement(db: Database) -> None:
    """1,000 skips at most in one statement, whoever they are of; the rest is marked."""
    now = NOW + 700 * HOUR
    some = [await running(db) for _ in range(3)]
    await record(db, [ended(task) for task in some], now)
    assert (await query(db, "select count(*) from runs where outcome = 'skipped'"))[0][0] == 1000
    rows = [await row_of(db, task.id) for task in some]
    assert sorted(row.skip_until is not None for row in rows) == [False, True, True]
    for row in rows:
        if row.skip_until is not None:
            assert (row.skip_until, row.skip_reason, row.next_run_at) == (now, "overrun", now)
            assert row.following is not None
            assert row.following <= now


async def test_a_move_is_for_one_version_and_one_status(db: Database) -> None:
    row = await store(db)
    place = Place(NOW + HOUR, NOW + HOUR, NOW + 2 * HOUR, NOW, skipped=[(NOW, WHY)])
    (first, second) = await asyncio.gather(
        *(courses.advance(db, [Move(row.id, 0, place)], NOW) for _ in range(2))
    )
    (moved,) = first + second
    assert moved.due is not None
    assert (moved.due.version, moved.due.next_run_at) == (1, NOW + HOUR)
    assert await runs_of(db, row.id) == [(NOW, "skipped", 1, 1)]
    epochs = await own_all(db)
    assert (await claims.claim(db, ME, [row], epochs, NOW)).tasks == []  # an old entry in a wheel
    claim = await claims.claim(db, ME, [moved.due], epochs, NOW + HOUR)
    assert len(claim.tasks) == 1
    assert await courses.advance(db, [Move(row.id, 2, place)], NOW) == []


async def test_a_move_to_nowhere_completes(db: Database) -> None:
    row = await store(db)
    over = Place(None, None, done_until=NOW, skipped=[(NOW, WHY)])
    (moved,) = await courses.advance(db, [Move(row.id, 0, over)], NOW)
    assert moved.due is None
    (stored,) = (await tasks.get(db, [row.id])).values()
    assert (stored.status, stored.version, stored.next_run_at) == ("completed", 1, None)
    assert await runs_of(db, row.id) == [(NOW, "skipped", 1, 1)]


async def paused(db: Database) -> tuple[Any, ...]:
    """Who paused the one task, and when."""
    return tuple((await query(db, "select paused_by, paused_at from tasks"))[0])


async def test_pauses(db: Database) -> None:
    row = await store(db)
    anna = Note("anna", "submit", "pause")
    assert await courses.pause(db, row.id, NOW, paused=True, note=anna)
    assert await paused(db) == ("anna", NOW)
    assert not await courses.pause(db, row.id, NOW, paused=True)
    waiting = await row_of(db, row.id)
    assert (waiting.paused, waiting.version) == (True, 1)
    # Only with a decision what was missed, that is, with a move.
    assert not await courses.pause(db, row.id, NOW, paused=False)
    stay = Place(waiting.occurrence, waiting.next_run_at, waiting.following)
    assert await courses.advance_one(db, Move(row.id, 1, stay), NOW, resume=True) is not None
    assert not (await row_of(db, row.id)).paused
    assert await paused(db) == (None, None)
    await query(db, "delete from tasks")
    task = await running(db)
    for is_paused, shown in ((True, (None, NOW)), (False, (None, None))):
        assert await courses.pause(db, task.id, NOW, paused=is_paused)
        held = await row_of(db, task.id)
        assert (held.paused, held.version, held.status) == (is_paused, task.token, "running")
        assert await paused(db) == shown


async def test_the_effect_of_the_next_occurrence_is_another(db: Database) -> None:
    """`exactly_once` knows an effect by task and occurrence."""
    task = await running(db)
    await record(db, [ended(task)], NOW)
    row = await row_of(db, task.id)
    due = DueRow(row.id, 0, row.next_run_at, row.version, 5, "default")
    slot = (await query(db, "select slot from tasks"))[0][0]
    claim = await claims.claim(db, ME, [due._replace(slot=slot)], await own_all(db), NOW + HOUR)
    (again,) = claim.tasks
    assert (again.occurrence, again.token) == (NOW + HOUR, 2)
