"""Which row is the verdict of an occurrence, whatever ended it, and how the ledger is read."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from store_rig import ME, NOW, claimed, ended, new_task, opened, own_all, query, submit
from waiting import wait_for

from duly.actors.recording import record
from duly.storage import claims, ledger, submitting, tasks, upkeep
from duly.storage.claims import Claimed
from duly.storage.database import Database
from duly.storage.ledger import Account, Entry, Filter, Place, Stale
from duly.storage.slots import DueRow

LATER = NOW + timedelta(seconds=1)
EVER = datetime(1970, 1, 1, tzinfo=UTC)
END = Place(datetime(2999, 1, 1, tzinfo=UTC), UUID(int=0), -1)


async def verdicts(db: Database, task_id: UUID) -> list[tuple[str, str | None]]:
    """Outcome and verdict of each run of a task, oldest first."""
    rows = await query(
        db,
        "select outcome, verdict from runs where task_id = $1 order by token, recorded_at",
        task_id,
    )
    return [tuple(row) for row in rows]


_WAITS = """
    select exists (select from pg_locks where not granted and relation = 'runs'::regclass)
"""
_COMPLETED = """
    insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict, recorded_at)
    values ($1, 't', 'q', 1, $2, 1, 'completed', 'completed', $2)
"""


async def account(db: Database, task_id: UUID) -> Account:
    found = await ledger.of_task(db, task_id, None, 10)
    assert found is not None
    return found


async def claim_again(db: Database, task_id: UUID, now: datetime = LATER) -> Claimed:
    row = (await tasks.get(db, [task_id]))[task_id]
    due = DueRow(row.id, row.slot, row.next_run_at or now, row.version, row.priority, row.queue)
    claim = await claims.claim(db, ME, [due], await own_all(db), now)
    return claim.tasks[0]


async def test_an_attempt_that_is_tried_again_is_no_verdict(db: Database) -> None:
    (task,) = await claimed(db, max_retries=2)
    await record(db, [ended(task, "failed")], NOW)
    again = await claim_again(db, task.id, NOW + timedelta(hours=1))
    await record(db, [ended(again, "lost")], NOW)
    last = await claim_again(db, task.id, NOW + timedelta(hours=2))
    assert await verdicts(db, task.id) == [("failed", None), ("lost", None)]
    await record(db, [ended(last)], NOW)
    assert (await verdicts(db, task.id))[2:] == [("completed", "completed")]


async def test_what_is_left_of_the_retries_decides(db: Database) -> None:
    for outcome in ("failed", "lost", "timed_out"):
        (task,) = await claimed(db, max_retries=0)
        await record(db, [ended(task, outcome)], NOW)
        assert await verdicts(db, task.id) == [(outcome, "failed")]


async def test_a_cancel_is_a_verdict_whether_it_ran_or_not(db: Database) -> None:
    (waiting,) = await submit(db)
    assert await tasks.cancel(db, waiting.id, LATER) is not None
    assert await verdicts(db, waiting.id) == [("cancelled", "cancelled")]
    (task,) = await claimed(db)
    assert await tasks.cancel(db, task.id, LATER) is not None
    assert await verdicts(db, task.id) == [("cancelled", "cancelled")]
    (backed_off,) = await claimed(db, max_retries=1)
    await record(db, [ended(backed_off, "failed")], NOW)
    assert await tasks.cancel(db, backed_off.id, LATER) is not None
    assert await verdicts(db, backed_off.id) == [("failed", None), ("cancelled", "cancelled")]


async def test_an_expired_one_off_is_skipped(db: Database) -> None:
    (row,) = await submit(db, misfire_grace=1.0)
    late = NOW + timedelta(seconds=5)
    assert (await claims.expire(db, [row], late)).ids == [row.id]
    (found,) = (await account(db, row.id)).ended
    assert (found.verdict, found.run.outcome, found.run.error) == (
        "skipped",
        "skipped",
        '"expired"',
    )


async def test_a_retry_by_a_person_opens_the_occurrence_again(db: Database) -> None:
    (task,) = await claimed(db, max_retries=0)
    await record(db, [ended(task, "failed")], NOW)
    assert await tasks.retry(db, task.id, LATER) is not None
    assert await verdicts(db, task.id) == [("failed", None)]
    assert (await account(db, task.id))[:2] == (NOW, [])
    again = await claim_again(db, task.id)
    await record(db, [ended(again)], LATER)
    assert await verdicts(db, task.id) == [("failed", None), ("completed", "completed")]
    found = await account(db, task.id)
    assert (found.opened, len(found.ended)) == (None, 1)
    assert [run.outcome for run in found.attempts] == ["completed", "failed"]


async def test_attempts_are_those_of_their_occurrence(db: Database) -> None:
    hour = timedelta(hours=1)
    one = new_task(
        schedule='{"every": 3600.0}', interval=hour, created_at=NOW - hour, max_retries=1
    )
    await submitting.submit(db, [one], NOW, NOW)
    for outcome in ("failed", "completed", "lost", "failed"):
        row = (await tasks.get(db, [one.id]))[one.id]
        assert row.next_run_at is not None
        task = await claim_again(db, one.id, row.next_run_at)
        await record(db, [ended(task, outcome)], row.next_run_at)
    found = await account(db, one.id)
    assert found.opened == NOW + 2 * hour
    assert [(v.verdict, v.run.occurrence) for v in found.ended] == [
        ("failed", NOW + hour), ("completed", NOW),
    ]  # fmt: skip
    assert [(a.occurrence, a.outcome) for a in found.attempts] == [
        (NOW + hour, "failed"), (NOW + hour, "lost"), (NOW, "completed"), (NOW, "failed"),
    ]  # fmt: skip


async def test_rows_from_before_there_were_verdicts(db: Database) -> None:
    (retried,) = await claimed(db, max_retries=1)
    await record(db, [ended(retried, "lost")], NOW)
    (dead,) = await claimed(db, max_retries=1)
    await record(db, [ended(dead, "failed")], NOW)
    again = await claim_again(db, dead.id, NOW + timedelta(hours=1))
    await record(db, [ended(again, "timed_out")], NOW)
    (done,) = await claimed(db)
    await record(db, [ended(done)], NOW)
    await query(db, "update runs set type = null, queue = null, verdict = null")
    for task_id, verdict in ((retried.id, []), (dead.id, ["failed"]), (done.id, ["completed"])):
        assert [one.verdict for one in (await account(db, task_id)).ended] == verdict


async def test_an_occurrence_that_ends_while_it_is_read_appears_once(fresh_database: str) -> None:
    hour = timedelta(hours=1)
    one = new_task(schedule='{"every": 3600.0}', interval=hour, created_at=NOW - hour)
    async with opened(fresh_database, statement_timeout_s=120.0) as db:
        await submitting.submit(db, [one], NOW, NOW)

        async def end(connection: Any) -> asyncio.Task[Account]:
            """Have the account read up to its verdicts, then end the occurrence."""
            async with connection.transaction():
                await connection.execute("lock table runs")
                reading = asyncio.create_task(account(db, one.id))

                async def waits() -> bool:
                    return await connection.fetchval(_WAITS) or reading.done()

                await wait_for(waits, 60, "the account waits for the verdicts")
                assert not reading.done()
                await connection.execute("update tasks set occurrence = $1", NOW + hour)
                await connection.execute(_COMPLETED, one.id, NOW)
            return reading

        first = await (await db.run(end))
        assert (first.opened, first.ended) == (NOW, [])
        then = await account(db, one.id)
        assert (then.opened, [v.run.occurrence for v in then.ended]) == (NOW + hour, [NOW])


# By time


async def fill(db: Database, count: int, verdict: str, kind: str = "t", first_s: int = 0) -> None:
    """Verdicts a millisecond apart, some seconds after `NOW`."""
    await query(
        db,
        "insert into runs (task_id, type, queue, token, occurrence, attempt, outcome, verdict,"
        " recorded_at) select gen_random_uuid(), $3, 'q', 1, $1::timestamptz, 1, $2, $2,"
        " $1::timestamptz + make_interval(secs => $4) + n * interval '1 millisecond'"
        " from generate_series(1, $5) n",
        NOW, verdict, kind, first_s, count,
    )  # fmt: skip


async def pages(db: Database, where: Filter, limit: int) -> tuple[list[Entry], int]:
    """All of it, page by page, and how many pages."""
    found: list[Entry] = []
    place: Place | None = END
    count = 0
    while place is not None:
        some, place = await ledger.entries(db, where, place, limit)
        assert len(some) <= limit
        found += some
        count += 1
    return found, count


async def test_pages_hold_each_verdict_once_newest_first(db: Database) -> None:
    await fill(db, 30, "completed")
    await query(db, "update runs set recorded_at = $1 where token = 1", NOW)  # all at one instant
    await fill(db, 25, "failed", first_s=1)
    await query(db, "insert into runs (task_id, type, queue, token, occurrence, attempt, outcome,"
                " recorded_at) values ($1, 't', 'q', 1, $2, 1, 'failed', $2)", uuid4(), NOW)  # fmt: skip
    found, count = await pages(db, Filter(EVER), 10)
    assert len({one.task_id for one in found}) == len(found) == 55
    assert [one.recorded_at for one in found] == sorted(
        (e.recorded_at for e in found), reverse=True
    )
    assert count == 6
    since = NOW + timedelta(seconds=1, milliseconds=5)
    assert len((await pages(db, Filter(since), 10))[0]) == 21
    before = Place(since, UUID(int=0), -1)
    assert len((await ledger.entries(db, Filter(EVER), before, 100))[0]) == 34


async def test_one_page_looks_at_so_many_only(db: Database) -> None:
    await fill(db, 3, "completed", "rare")
    await fill(db, 10_000, "completed", first_s=1)
    await fill(db, 2, "completed", "rare", first_s=60)
    some, place = await ledger.entries(db, Filter(EVER, type="rare"), END, 10)
    assert [one.type for one in some] == ["rare"] * 2
    assert place is not None
    rest, none = await ledger.entries(db, Filter(EVER, type="rare"), place, 10)
    assert ([one.type for one in rest], none) == (["rare"] * 3, None)


async def test_what_is_asked_for(db: Database) -> None:
    for verdict in ledger.VERDICTS:
        await fill(db, 2, verdict)
    await fill(db, 1, "failed", "other")
    await query(db, "update runs set error = '{\"type\": \"overrun\"}' where verdict = 'skipped'")
    for where, count in (
        ({}, 9), ({"verdict": "completed"}, 2), ({"verdict": "failed"}, 3),
        ({"verdict": "failed", "type": "other"}, 1), ({"verdict": "skipped"}, 2),
        ({"reason": "overrun"}, 2), ({"reason": "paused"}, 0), ({"queue": "q"}, 9),
        ({"queue": "another"}, 0), ({"verdict": "rejected"}, 0),
    ):  # fmt: skip
        found, _ = await pages(db, Filter(EVER, **where), 4)
        assert len(found) == count, where


def plan_nodes(plan: dict[str, Any]) -> Sequence[tuple[str, str]]:
    """Kind and table of every node."""
    inner = [one for child in plan.get("Plans", []) for one in plan_nodes(child)]
    return [(plan["Node Type"], plan.get("Relation Name", "")), *inner]


async def test_no_page_reads_a_whole_day(db: Database) -> None:
    await upkeep.make_partitions(db, NOW.date())
    await fill(db, 60_000, "completed")
    await fill(db, 5_000, "failed", first_s=100)
    await query(db, "insert into rejected_reports select gen_random_uuid(), 1, 'completed', 'w',"
                " $1::timestamptz, $1::timestamptz + n * interval '1 ms', 't', 'q', $1, null, null, null, 1"
                " from generate_series(1, 20000) n", NOW)  # fmt: skip
    await query(db, "analyze runs, rejected_reports")
    day = NOW.strftime("%Y%m%d")
    task_id = (await query(db, "select task_id from runs limit 1"))[0]["task_id"]
    for name, args in (
        ("verdicts", (EVER, *END, None, None, None, 51)),
        ("verdicts", (EVER, *END, "rare", None, "completed", 51)),
        ("verdicts_not_completed", (EVER, *END, None, None, "failed", None, 51)),
        ("verdicts_not_completed", (EVER, *END, None, "rare", "skipped", "paused", 51)),
        ("rejected", (EVER, *END, "rare", None, 51)),
        ("task_verdicts", (task_id, None, None, 51)),
        ("occurrence_attempts", (task_id, [NOW], [1 << 62])),
        ("occurrence_rejected", (task_id, [NOW])),
    ):
        (row,) = await query(db, f"explain (format json) {Database.sql(name)}", *args)
        nodes = plan_nodes(json.loads(row[0])[0]["Plan"])
        scanned = [n for n in nodes if n[0] == "Seq Scan" and n[1].endswith(day)]
        assert not scanned, (name, args, nodes)
        assert any(n[0].startswith(("Index", "Bitmap")) and n[1].endswith(day) for n in nodes), name


# Refused reports


def stale(task: Claimed, outcome: str = "completed", worker: str = "w2", **changes: Any) -> Stale:
    return Stale(task.id, task.token, outcome, worker, NOW, NOW, None)._replace(**changes)


async def kept(db: Database, task_id: UUID) -> list[tuple[Any, ...]]:
    rows = await query(
        db,
        "select token, outcome, worker, times from rejected_reports where task_id = $1"
        " order by received_at, token, outcome, worker",
        task_id,
    )
    return [tuple(row) for row in rows]


async def test_a_stale_report_is_kept_and_its_repeats_counted(db: Database) -> None:
    (task,) = await claimed(db, max_retries=1)
    await record(db, [ended(task, "lost")], NOW)
    again = await claim_again(db, task.id, NOW + timedelta(hours=1))
    for at, worker in enumerate(("w2", "w2", "", "w3")):
        one = stale(task, worker=worker, error='{"a": 1}')
        await ledger.reject(db, [one], NOW + timedelta(seconds=at))
    await ledger.reject(db, [stale(task, times=5)], NOW)
    assert await kept(db, task.id) == [
        (1, "completed", "w2", 7), (1, "completed", "", 1), (1, "completed", "w3", 1),
    ]  # fmt: skip
    await record(db, [ended(again)], NOW)
    found = await account(db, task.id)
    assert {(one.worker, one.error) for one in found.rejected} == {
        ("w2", '{"a": 1}'), ("w3", '{"a": 1}'), (None, '{"a": 1}'),
    }  # fmt: skip
    entries, _ = await pages(db, Filter(EVER, verdict="rejected"), 2)
    assert {(one.verdict, one.outcome, one.type, one.queue) for one in entries} == {
        ("rejected", "completed", "t", "default")
    }
    assert len(entries) == 3


async def test_what_is_recorded_and_comes_again_is_not_stale(db: Database) -> None:
    (task,) = await claimed(db)
    await record(db, [ended(task)], NOW)
    same = stale(task, worker="w1")
    await ledger.reject(db, [same], NOW)
    assert await kept(db, task.id) == []
    # Another end of the same attempt, or another worker with it, is.
    await ledger.reject(db, [same._replace(outcome="failed"), same._replace(worker="w2")], NOW)
    assert {row[1:3] for row in await kept(db, task.id)} == {("failed", "w1"), ("completed", "w2")}
    (put_off,) = await claimed(db)
    await record(db, [ended(put_off, "snoozed", delay_s=60.0)], NOW)
    await ledger.reject(db, [stale(put_off, "snoozed")], NOW)
    assert await kept(db, put_off.id) == []


async def test_a_stale_report_is_shown_with_the_occurrence_of_its_attempt(db: Database) -> None:
    hour = timedelta(hours=1)
    one = new_task(schedule='{"every": 3600.0}', interval=hour, created_at=NOW - hour)
    await submitting.submit(db, [one], NOW, NOW)
    first = await claim_again(db, one.id, NOW)
    await record(db, [ended(first)], NOW)
    second = await claim_again(db, one.id, NOW + hour)
    await ledger.reject(db, [stale(first), stale(second, token=second.token + 7)], NOW + hour)
    rejected = (await account(db, one.id)).rejected
    assert {(r.occurrence, r.token) for r in rejected} == {
        (NOW, first.token), (NOW + hour, second.token + 7),
    }  # fmt: skip


async def test_reports_of_tasks_that_do_not_exist_are_not_kept(db: Database) -> None:
    (task,) = await claimed(db)
    await ledger.reject(db, [stale(task, id=uuid4())], NOW)
    assert await query(db, "select from rejected_reports") == []


async def test_a_flood_for_one_task_is_counted_in_one_row(db: Database) -> None:
    (task,) = await claimed(db)
    (other,) = await claimed(db)
    for at in range(8):
        await ledger.reject(db, [stale(task, token=99 + 20 * at + n) for n in range(20)], NOW)
    await ledger.reject(db, [stale(task, token=99, times=3), stale(other, token=99)], NOW)
    rows = await kept(db, task.id)
    assert len(rows) == 101
    assert (0, "more", "", 60) in rows
    assert (99, "completed", "w2", 4) in rows
    assert len(await kept(db, other.id)) == 1
    await ledger.reject(db, [stale(task, token=999)], NOW + timedelta(days=1))
    assert len(await kept(db, task.id)) == 102
