"""Alerts on a real PostgreSQL: raised and cleared once, whoever looks, in the statement that ends an occurrence."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from store_rig import ME, NOW, ended, new_task, opened, own_all, query

from duly.actors import cancelling
from duly.actors.recording import record
from duly.storage import alerts, audit, claims, courses, submitting, tasks
from duly.storage.alerts import Alert, Filter
from duly.storage.claims import Claimed
from duly.storage.courses import Move, Place
from duly.storage.database import Database
from duly.storage.slots import DueRow
from duly.storage.tasks import Change
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import to_us

HOUR = timedelta(hours=1)


async def watched(db: Database, **more: Any) -> UUID:
    """A task made at `NOW`, whose first occurrence is due then too."""
    schedule = json.dumps({"every": 3600.0, **more})
    new = new_task(created_at=NOW, schedule=schedule, interval=HOUR, max_retries=0)
    await submitting.submit(db, [new], NOW, NOW)
    return new.id


async def run(db: Database, task_id: UUID, outcome: claims.Outcome, now: datetime) -> Claimed:
    """Claim what waits, and record how it ended."""
    row = (await courses.courses(db, [task_id]))[task_id]
    slot = (await query(db, "select slot from tasks where id = $1", task_id))[0]["slot"]
    due = DueRow(task_id, slot, row.next_run_at, row.version, 5, "default")
    claim = await claims.claim(db, ME, [due], await own_all(db), row.next_run_at)
    (task,) = claim.tasks
    recorded = await record(db, [ended(task, outcome)], now)
    assert len(recorded.pairs) == 1
    return task


async def listed(db: Database, **where: Any) -> list[Alert]:
    return await alerts.listing(db, Filter(**where), None, 100)


async def failed_in_row(db: Database, task_id: UUID) -> int:
    rows = await query(db, "select failed_in_row from tasks where id = $1", task_id)
    count: int = rows[0]["failed_in_row"]
    return count


async def test_silence_is_counted_from_the_making_and_from_each_success(db: Database) -> None:
    task_id = await watched(db, expect_within=5400)
    assert await alerts.raise_silent(db, NOW + 1.49 * HOUR, 10) == 0
    await run(db, task_id, "completed", NOW + HOUR)
    assert await alerts.raise_silent(db, NOW + 2.49 * HOUR, 10) == 0
    assert await alerts.raise_silent(db, NOW + 2.5 * HOUR, 10) == 1
    (alert,) = await listed(db)
    assert (alert.kind, alert.task_id, alert.type, alert.queue) == (
        "silent", task_id, "t", "default",
    )  # fmt: skip
    assert (alert.since, alert.raised_at) == (NOW + HOUR, NOW + 2.5 * HOUR)
    assert json.loads(alert.details) == {
        "expect_within": 5400, "failed_in_row": 0, "next_run_at": (NOW + 2 * HOUR).isoformat(),
        "paused": False, "status": "pending",
    }  # fmt: skip
    assert await alerts.raise_silent(db, NOW + 9 * HOUR, 10) == 0  # it lasts: one alert


async def test_the_outlook_tells_what_there_is_to_do(db: Database) -> None:
    async def outlook(hours: float) -> tuple[bool, bool, bool]:
        return tuple(await alerts.outlook(db, NOW + hours * HOUR))  # type: ignore[return-value]

    task_id = await watched(db, expect_within=3600)
    assert await outlook(0.9) == (False, False, False)
    assert await outlook(1) == (True, False, False)
    await alerts.raise_silent(db, NOW + HOUR, 10)
    assert await outlook(1) == (False, True, True)
    await alerts.news(db, 10)
    assert await outlook(1) == (False, True, False)
    await run(db, task_id, "completed", NOW + 1.5 * HOUR)
    await alerts.clear(db, NOW + 1.5 * HOUR)
    assert await outlook(1.5) == (False, False, True)
    await alerts.news(db, 10)
    assert await outlook(1.5) == (False, False, False)


async def test_a_start_in_the_future_is_waited_for(db: Database) -> None:
    later = (NOW + 10 * HOUR).isoformat()
    task_id = await watched(db, expect_within=60, start_at=later)
    assert await alerts.raise_silent(db, NOW + 10 * HOUR, 10) == 0
    assert await alerts.raise_silent(db, NOW + 10.1 * HOUR, 10) == 1
    assert (await listed(db, task_id=task_id))[0].since == NOW + 10 * HOUR


async def test_a_failure_is_silence(db: Database) -> None:
    task_id = await watched(db, expect_within=5400)
    await run(db, task_id, "failed", NOW + HOUR)
    assert await alerts.raise_silent(db, NOW + 1.5 * HOUR, 10) == 1
    assert (await listed(db))[0].since == NOW


async def test_a_success_clears_it_and_it_can_come_again(db: Database) -> None:
    task_id = await watched(db, expect_within=60)
    await alerts.raise_silent(db, NOW + HOUR, 10)
    assert await alerts.clear(db, NOW + HOUR) == 0
    await run(db, task_id, "completed", NOW + 2 * HOUR)
    assert await alerts.clear(db, NOW + 2 * HOUR) == 1
    assert await alerts.clear(db, NOW + 2 * HOUR) == 0
    assert [a.cleared_at for a in await listed(db, open=False)] == [NOW + 2 * HOUR]
    assert await listed(db, open=True) == []
    await alerts.raise_silent(db, NOW + 3 * HOUR, 10)
    assert len(await listed(db)) == 2
    assert await alerts.open_by_kind(db) == {"silent": 1}


async def test_what_lasts_is_one_alert_also_if_it_is_seen_before_it_was_cleared(
    db: Database,
) -> None:
    task_id = await watched(db, expect_within=60)
    await alerts.raise_silent(db, NOW + HOUR, 10)
    await run(db, task_id, "completed", NOW + 2 * HOUR)
    assert await alerts.raise_silent(db, NOW + 3 * HOUR, 10) == 0
    assert len(await listed(db)) == 1
    assert await alerts.clear(db, NOW + 3 * HOUR) == 0  # it is silent again


async def test_nodes_that_look_together_raise_each_once(fresh_database: str) -> None:
    async with opened(fresh_database, pool_size=8) as db:
        for _ in range(30):
            await watched(db, expect_within=60)
        raised = await asyncio.gather(*(alerts.raise_silent(db, NOW + HOUR, 7) for _ in range(8)))
        while more := await alerts.raise_silent(db, NOW + HOUR, 7):
            raised.append(more)
        assert sum(raised) == len(await listed(db)) == 30
        news = await asyncio.gather(*(alerts.news(db, 10) for _ in range(5)))
        told = [alert.id for some in news for alert in some]
        while rest := await alerts.news(db, 10):
            told += [alert.id for alert in rest]
        assert sorted(told) == sorted(alert.id for alert in await listed(db))


async def test_the_last_allowed_failure_pauses_and_tells_in_one_statement(db: Database) -> None:
    task_id = await watched(db, pause_after=3)
    for n in range(2):
        await run(db, task_id, "failed", NOW + n * HOUR)
    assert not (await courses.courses(db, [task_id]))[task_id].paused
    assert await listed(db) == []
    await run(db, task_id, "timed_out", NOW + 2 * HOUR)
    (row,) = await query(
        db, "select paused, paused_by, paused_at from tasks where id = $1", task_id
    )
    assert tuple(row) == (True, "system", NOW + 2 * HOUR)
    (alert,) = await listed(db)
    assert (alert.kind, alert.task_id, alert.since) == ("auto_paused", task_id, NOW + 2 * HOUR)
    assert json.loads(alert.details) == {"failed_in_row": 3}
    (noted,) = await audit.notes(db, audit.Filter(task_id=task_id), None, 10)
    assert (noted.who, noted.role, noted.action) == (None, "system", "pause")


async def test_failures_from_before_it_was_watched_count_and_tell(db: Database) -> None:
    task_id = await watched(db)
    for n in range(4):
        await run(db, task_id, "failed", NOW + n * HOUR)
    wanted = Change(schedule='{"every": 3600.0, "pause_after": 3}', interval=HOUR)
    await tasks.patch(db, task_id, wanted, None, NOW + 3.5 * HOUR)
    await run(db, task_id, "failed", NOW + 4 * HOUR)
    assert (await courses.courses(db, [task_id]))[task_id].paused
    assert [alert.kind for alert in await listed(db)] == ["auto_paused"]
    assert len(await audit.notes(db, audit.Filter(task_id=task_id), None, 10)) == 1


async def test_a_pause_by_a_person_is_not_the_systems(db: Database) -> None:
    task_id = await watched(db, pause_after=1)
    row = (await courses.courses(db, [task_id]))[task_id]
    slot = (await query(db, "select slot from tasks where id = $1", task_id))[0]["slot"]
    due = DueRow(task_id, slot, row.next_run_at, row.version, 5, "default")
    (task,) = (await claims.claim(db, ME, [due], await own_all(db), NOW)).tasks
    await courses.pause(db, task_id, NOW, paused=True)
    await record(db, [ended(task, "failed")], NOW + HOUR)
    assert await listed(db) == []
    assert await audit.notes(db, audit.Filter(task_id=task_id), None, 10) == []


async def test_each_pause_by_the_system_is_noted_also_before_the_alert_was_cleared(
    db: Database,
) -> None:
    task_id = await watched(db, pause_after=1)
    for n in range(2):
        await run(db, task_id, "failed", NOW + n * HOUR)
        row = (await courses.courses(db, [task_id]))[task_id]
        to = Place(row.occurrence, row.next_run_at, row.following, row.done_until)
        await courses.advance_one(db, Move(task_id, row.version, to), NOW + n * HOUR, resume=True)
    assert len(await audit.notes(db, audit.Filter(task_id=task_id), None, 10)) == 2
    assert len(await listed(db)) == 1


async def test_a_success_in_between_begins_the_count_anew(db: Database) -> None:
    task_id = await watched(db, pause_after=2)
    for n, outcome in enumerate(("failed", "completed", "failed")):
        await run(db, task_id, outcome, NOW + n * HOUR)  # type: ignore[arg-type]
    assert await failed_in_row(db, task_id) == 1
    assert not (await courses.courses(db, [task_id]))[task_id].paused


async def test_retries_are_one_failure_and_none_without_pause_after_pauses(db: Database) -> None:
    task_id = await watched(db)
    await query(db, "update tasks set max_retries = 1 where id = $1", task_id)
    await run(db, task_id, "failed", NOW)
    assert await failed_in_row(db, task_id) == 0  # a retry is to come
    await run(db, task_id, "failed", NOW + timedelta(minutes=1))
    assert await failed_in_row(db, task_id) == 1
    for n in range(2, 5):
        await query(db, "update tasks set max_retries = 0 where id = $1", task_id)
        await run(db, task_id, "failed", NOW + n * HOUR)
    row = (await courses.courses(db, [task_id]))[task_id]
    assert (await failed_in_row(db, task_id), row.paused) == (4, False)


async def test_a_resume_clears_the_alert_and_forgives(db: Database) -> None:
    task_id = await watched(db, pause_after=1)
    await run(db, task_id, "failed", NOW)
    row = (await courses.courses(db, [task_id]))[task_id]
    assert row.paused
    to = Place(row.occurrence, row.next_run_at, row.following, row.done_until)
    moved = await courses.advance_one(db, Move(task_id, row.version, to), NOW, resume=True)
    assert moved is not None
    assert await failed_in_row(db, task_id) == 0
    assert await alerts.clear(db, NOW + HOUR) == 1
    await run(db, task_id, "failed", NOW + 2 * HOUR)
    assert len(await listed(db)) == 2


async def test_a_resume_while_it_runs_forgives_too(db: Database) -> None:
    task_id = await watched(db, pause_after=9)
    await run(db, task_id, "failed", NOW)
    await courses.pause(db, task_id, NOW, paused=True)
    assert await failed_in_row(db, task_id) == 1
    row = (await courses.courses(db, [task_id]))[task_id]
    to = Place(row.occurrence, row.next_run_at, row.following, row.done_until)
    await courses.advance_one(db, Move(task_id, row.version, to), NOW, resume=True)
    assert await failed_in_row(db, task_id) == 0


async def test_alerts_of_a_cancelled_task_and_of_one_that_is_not_watched_any_more_end(
    db: Database,
) -> None:
    gone, changed = await watched(db, expect_within=60), await watched(db, expect_within=60)
    await alerts.raise_silent(db, NOW + HOUR, 10)
    clock = ClusterClock(lambda: 0.0)
    clock.observe(0.0, 0.0, to_us(NOW + HOUR))
    assert await cancelling.cancel(db, clock, gone) is not None
    plain = Change(schedule='{"every": 3600.0}', interval=HOUR)
    done = await tasks.patch(db, changed, plain, None, NOW + HOUR)
    assert done is not None
    assert done.changed
    assert await alerts.clear(db, NOW + HOUR) == 2
    assert await alerts.raise_silent(db, NOW + 9 * HOUR, 10) == 0


async def test_a_changed_expectation_counts_from_the_change(db: Database) -> None:
    task_id = await watched(db)
    assert await alerts.raise_silent(db, NOW + 9 * HOUR, 10) == 0
    now = NOW + 9 * HOUR
    wanted = Change(schedule='{"every": 3600.0, "expect_within": 60.0}', interval=HOUR)
    await tasks.patch(db, task_id, wanted, None, now)
    assert await alerts.raise_silent(db, now + timedelta(seconds=59), 10) == 0
    assert await alerts.raise_silent(db, now + timedelta(seconds=60), 10) == 1


async def test_what_the_webhook_was_not_told_comes_again_and_what_it_was_does_not(
    db: Database,
) -> None:
    task_id = await watched(db, expect_within=60)
    await alerts.raise_silent(db, NOW + HOUR, 10)
    (alert,) = await alerts.to_tell(db, NOW + HOUR, 10)
    assert await alerts.to_tell(db, NOW + HOUR, 10) == []  # whoever has it, tells it
    later = NOW + HOUR + timedelta(minutes=1)
    (again,) = await alerts.to_tell(db, later, 10)
    await run(db, task_id, "completed", later)
    await alerts.clear(db, later)
    await alerts.told(db, again)  # of what it was: that it is over is still to be told
    (cleared,) = await alerts.to_tell(db, later, 10)
    assert (cleared.id, cleared.cleared_at) == (alert.id, later)
    await alerts.told(db, cleared)
    assert await alerts.to_tell(db, later + HOUR, 10) == []


async def test_old_news_are_not_told_and_old_alerts_are_forgotten(db: Database) -> None:
    task_id = await watched(db, expect_within=60)
    await alerts.raise_silent(db, NOW + HOUR, 10)
    assert await alerts.to_tell(db, NOW + 26 * HOUR, 10) == []
    await run(db, task_id, "completed", NOW + 30 * HOUR)
    await alerts.clear(db, NOW + 30 * HOUR)
    assert not await alerts.forget(db, NOW + 30 * HOUR)
    assert await alerts.forget(db, NOW + 31 * HOUR)
    assert await listed(db) == []
