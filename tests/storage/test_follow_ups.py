"""What follows a task's end is stored by the statement that records that end: once for each outcome."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from store_rig import ME, NOW, claimed, ended, new_task, outcomes, own_all, query, statuses, submit
from waiting import wait_for

from duly.actors.recording import record
from duly.storage import claims, courses, submitting, tasks, waits
from duly.storage.claims import Claimed
from duly.storage.database import Database
from duly.storage.slots import DueRow
from duly.storage.tasks import TaskRow
from duly.storage.waits import WAITING, CannotWaitError

LATER = NOW + timedelta(seconds=5)


def then(**changes: Any) -> str:
    """A follow-up as the API stores it."""
    plain = {
        "type": "next", "queue": "q2", "payload": None, "delay": 0, "max_retries": 1, "timeout": 60,
        "on_lost": "fail", "priority": 7, "tags": {"k": "v"},
    }  # fmt: skip
    return json.dumps(plain | changes)


async def followers(db: Database, parent: UUID) -> list[TaskRow]:
    """Tasks that follow `parent`, the oldest first, wherever they are."""
    sql = "select id from {} where parent ->> 'id' = $1::text"
    rows = [row for table in ("tasks", "finished_tasks")
            for row in await query(db, sql.format(table), str(parent))]  # fmt: skip
    found = await tasks.get(db, [row["id"] for row in rows])
    return sorted(found.values(), key=lambda row: row.created_at)


async def waiting_for(db: Database, *parents: UUID, **changes: Any) -> UUID:
    """A task that waits for these."""
    return (await submit_all(db, waiter(*parents, **changes)))[0]


def waiter(*parents: UUID, **changes: Any) -> submitting.NewTask:
    after = json.dumps([str(one) for one in parents])
    return new_task(after=after, **({"due": WAITING, "occurrence": NOW} | changes))


async def submit_all(db: Database, *new: submitting.NewTask) -> list[UUID]:
    answers = await submitting.submit_all(db, new, NOW, NOW)
    assert all(answer.slot is not None for answer in answers)
    return [one.id for one in new]


async def row(db: Database, task_id: UUID) -> TaskRow:
    return (await tasks.get(db, [task_id]))[task_id]


async def claim(db: Database, *ids: UUID, now: Any = LATER) -> list[Claimed]:
    """Claim them as they stand; only what is due by `now` is asked for, as by a sweep."""
    due = await due_by(db, now)
    some = [one for one in due if one.id in ids]
    return (await claims.claim(db, ME, some, await own_all(db), now)).tasks if some else []


async def due_by(db: Database, now: Any) -> list[DueRow]:
    sql = (
        "select id, slot, next_run_at, version, priority, queue from tasks "
        "where status = 'pending' and not paused and next_run_at <= $1"
    )
    return [DueRow(*one) for one in await query(db, sql, now)]


async def expire(db: Database, *ids: UUID) -> claims.Expired:
    return await claims.expire(db, [one for one in await due_by(db, LATER) if one.id in ids], LATER)


# On success and on failure


async def test_a_success_is_followed_by_its_task_with_the_result(db: Database) -> None:
    first = then(payload={"n": 1}, delay=60, backoff={"kind": "fixed", "delay": 2}, misfire_grace=9)
    (task,) = await claimed(db, on_success=first, on_failure=then(type="other"), traceparent="t-1")
    report = ended(task, result='{"sum": 1.50}')
    done = await record(db, [report], LATER)
    assert done.pairs == {(task.id, task.token)}
    (follower,) = await followers(db, task.id)
    assert (follower.type, follower.queue, follower.payload) == ("next", "q2", '{"n": 1}')
    assert (follower.status, follower.next_run_at) == ("pending", LATER + timedelta(seconds=60))
    assert (follower.max_retries, follower.timeout, follower.on_lost) == (1, 60, "fail")
    assert (follower.priority, follower.tags, follower.misfire_grace) == (7, '{"k": "v"}', 9)
    assert json.loads(follower.backoff or "") == {"kind": "fixed", "delay": 2}
    parent = json.loads(follower.parent or "")
    assert (parent["id"], parent["token"], parent["status"]) == (
        str(task.id),
        task.token,
        "completed",
    )
    assert (parent["result"], parent["error"]) == ({"sum": 1.5}, None)
    assert '"sum": 1.50' in (follower.parent or "")  # digit for digit
    (run,) = await tasks.runs(db, task.id, None, 10)
    assert run.follow_up == follower.id
    # Whoever owns its slot hears of it.
    assert [one.due.id for one in done.waiting] == [follower.id]
    # It was asked for, so it stays on the task.
    assert json.loads((await row(db, task.id)).on_success or "")["type"] == "next"


async def test_a_failure_is_followed_once_it_is_final(db: Database) -> None:
    (task,) = await claimed(db, on_failure=then(), max_retries=1)
    await record(db, [ended(task, "failed", error='"once"')], LATER)
    assert await followers(db, task.id) == []
    (again,) = await claim(db, task.id, now=LATER + timedelta(hours=1))
    await record(db, [ended(again, "failed", error='"twice"')], LATER)
    (follower,) = await followers(db, task.id)
    assert json.loads(follower.parent or "")["error"] == "twice"
    assert json.loads(follower.parent or "")["status"] == "failed"


async def test_a_success_without_on_success_is_recorded_by_the_short_statement(
    db: Database,
) -> None:
    (task,) = await claimed(db, on_failure=then())
    recorded = await claims.complete(db, [ended(task)], LATER)
    assert [one.id for one in recorded] == [task.id]
    assert await followers(db, task.id) == []
    assert (await row(db, task.id)).on_failure is not None


async def test_a_repeated_report_is_not_followed_twice(db: Database) -> None:
    some = await claimed(db, 3, on_success=then())
    reports = [ended(task) for task in some]
    both = await asyncio.gather(
        record(db, [*reports, *reports], LATER), record(db, reports[::-1], LATER)
    )
    assert sum(len(one.pairs) for one in both) == 3
    await record(db, reports, LATER)
    for task in some:
        assert len(await followers(db, task.id)) == 1


@pytest.mark.parametrize("outcome", ["failed", "lost", "timed_out"])
async def test_every_kind_of_failure_is_followed(db: Database, outcome: claims.Outcome) -> None:
    (task,) = await claimed(db, on_failure=then(), max_retries=0, on_lost="fail")
    await record(db, [ended(task, outcome, error=f'"{outcome}"')], LATER)
    (follower,) = await followers(db, task.id)
    assert json.loads(follower.parent or "")["error"] == outcome


async def test_what_is_too_late_is_followed_as_a_failure(db: Database) -> None:
    (late,) = await submit(db, due=NOW - timedelta(minutes=1), misfire_grace=1, on_failure=then())
    gone = await claims.expire(db, [late], NOW)
    (follower,) = await followers(db, late.id)
    assert gone.ids == [late.id]
    assert [one.due.id for one in gone.waiting] == [follower.id]
    assert json.loads(follower.parent or "")["error"] == "expired"
    assert (await claims.expire(db, [late], NOW)).ids == []
    assert len(await followers(db, late.id)) == 1


async def test_a_cancelled_task_is_followed_by_nothing(db: Database) -> None:
    (task,) = await claimed(db, on_success=then(), on_failure=then())
    assert await tasks.cancel(db, task.id, LATER) is not None
    await record(db, [ended(task)], LATER)
    assert await followers(db, task.id) == []


async def test_a_task_that_a_person_retries_has_another_outcome(db: Database) -> None:
    (task,) = await claimed(db, on_failure=then(), max_retries=0)
    await record(db, [ended(task, "failed")], LATER)
    assert await tasks.retry(db, task.id, LATER) is not None
    (again,) = await claim(db, task.id)
    await record(db, [ended(again, "failed")], LATER)
    found = await followers(db, task.id)
    assert sorted(json.loads(one.parent or "")["token"] for one in found) == [
        task.token,
        again.token,
    ]


async def test_each_occurrence_of_a_periodic_task_is_followed(db: Database) -> None:
    (task,) = await claimed(
        db, schedule='{"every": 60}', interval=timedelta(seconds=60), on_success=then(),
        on_failure=then(type="alarm"), max_retries=0,
    )  # fmt: skip
    await record(db, [ended(task, result="1")], LATER)
    (again,) = await claim(db, task.id, now=LATER + timedelta(seconds=60))
    await record(db, [ended(again, "failed", error="2")], LATER)
    found = await followers(db, task.id)
    assert sorted(one.type for one in found) == ["alarm", "next"]
    occurrences = {json.loads(one.parent or "")["occurrence"] for one in found}
    assert len(occurrences) == 2


async def test_a_follow_up_may_have_one_of_its_own(db: Database) -> None:
    (task,) = await claimed(db, on_success=then(on_success=json.loads(then(type="third"))))
    await record(db, [ended(task)], LATER)
    (second,) = await followers(db, task.id)
    (claim_of_second,) = await claim(db, second.id)
    assert json.loads(claim_of_second.parent or "")["id"] == str(task.id)
    await record(db, [ended(claim_of_second)], LATER)
    (third,) = await followers(db, second.id)
    assert (third.type, third.on_success) == ("third", None)


async def test_a_claim_of_a_follow_up_brings_payload_and_parent(db: Database) -> None:
    (task,) = await claimed(db, on_success=then(payload=[1]))
    await record(db, [ended(task, result='"r"')], LATER)
    (follower,) = await followers(db, task.id)
    (one,) = await claim(db, follower.id)
    assert one.payload == "[1]"
    assert json.loads(one.parent or "")["result"] == "r"
    (same,) = await claims.running(db, [(one.id, one.token)])
    assert same == one


# After


async def test_a_task_waits_until_all_have_completed(db: Database) -> None:
    one, two = await claimed(db, 2)
    last = await waiting_for(db, one.id, two.id)
    assert await claim(db, last) == []
    assert set((await row(db, last)).waits_for or []) == {one.id, two.id}
    assert (await record(db, [ended(one)], LATER)).waiting == []
    assert (await row(db, last)).waits_for == [two.id]
    done = await record(db, [ended(two)], LATER)
    assert [waiting.due.id for waiting in done.waiting] == [last]
    found = await row(db, last)
    assert (found.waits_for, found.next_run_at, found.occurrence) == (None, LATER, LATER)
    assert found.after == [one.id, two.id]
    (ran,) = await claim(db, last)
    assert (ran.id, ran.occurrence) == (last, LATER)
    assert await query(db, "select from task_waits") == []


async def test_both_in_one_batch_and_at_the_same_time(db: Database) -> None:
    some = await claimed(db, 6)
    last = [await waiting_for(db, *(task.id for task in some)) for _ in range(4)]
    halves = [[ended(task) for task in some[:4]], [ended(task) for task in some[2:][::-1]]]
    await asyncio.gather(*(record(db, half, LATER) for half in halves))
    for task_id in last:
        assert (await row(db, task_id)).waits_for is None


async def test_it_is_not_due_before_its_own_time(db: Database) -> None:
    (one,) = await claimed(db)
    at = NOW + timedelta(hours=1)
    last = await waiting_for(db, one.id, occurrence=at)
    await record(db, [ended(one)], LATER)
    assert (await row(db, last)).next_run_at == at


async def test_a_failure_ends_all_that_wait_for_it(db: Database) -> None:
    one, two = await claimed(db, 2, max_retries=0)
    second = await waiting_for(db, one.id, two.id, on_failure=then())
    third = await waiting_for(db, second)
    await record(db, [ended(one, "failed", error='"broken"')], LATER)
    assert await claim(db, second) == []
    assert (await expire(db, second)).ids == [second]
    found = await row(db, second)
    assert found.status == "failed"
    said = json.loads(found.error or "")
    assert (said["type"], said["task"], said["status"]) == ("after", str(one.id), "failed")
    assert len(await followers(db, second)) == 1
    assert (await expire(db, third)).ids == [third]
    assert json.loads((await row(db, third)).error or "")["task"] == str(second)
    await record(db, [ended(two)], LATER)  # which comes too late to change anything
    assert await statuses(db, [one.id, two.id, second, third]) == [
        "failed",
        "completed",
        "failed",
        "failed",
    ]
    assert await outcomes(db, third) == ["skipped"]


async def test_a_cancel_ends_those_that_wait_for_it(db: Database) -> None:
    (one,) = await submit(db)
    last = await waiting_for(db, one.id)
    assert await tasks.cancel(db, one.id, LATER) is not None
    assert (await expire(db, last)).ids == [last]
    assert json.loads((await row(db, last)).error or "")["status"] == "cancelled"


async def test_a_pause_does_not_keep_it_from_its_end(db: Database) -> None:
    (one,) = await submit(db)
    last = await waiting_for(db, one.id)
    assert await courses.pause(db, last, NOW, paused=True)
    await tasks.cancel(db, one.id, LATER)
    assert (await expire(db, last)).ids == [last]


async def test_a_paused_one_is_let_go_and_stays_paused(db: Database) -> None:
    (one,) = await claimed(db)
    last = await waiting_for(db, one.id)
    assert await courses.pause(db, last, NOW, paused=True)
    assert (await record(db, [ended(one)], LATER)).waiting == []
    found = await row(db, last)
    assert (found.paused, found.waits_for, found.next_run_at) == (True, None, LATER)


async def test_a_waiting_task_can_be_cancelled(db: Database) -> None:
    (one,) = await claimed(db)
    last = await waiting_for(db, one.id)
    assert await tasks.cancel(db, last, LATER) is not None
    await record(db, [ended(one)], LATER)
    assert await statuses(db, [one.id, last]) == ["completed", "cancelled"]
    assert await query(db, "select from task_waits") == []


async def test_a_retried_one_does_not_wait_again(db: Database) -> None:
    one, two = await claimed(db, 2, max_retries=0)
    last = await waiting_for(db, one.id, two.id)
    await record(db, [ended(one, "failed")], LATER)
    await expire(db, last)
    assert await tasks.retry(db, last, LATER) is not None
    await record(db, [ended(two, "failed")], LATER)
    (ran,) = await claim(db, last)
    assert ran.id == last


async def test_what_has_completed_is_not_waited_for(db: Database) -> None:
    one, two = await claimed(db, 2)
    await record(db, [ended(one)], NOW)
    answers = await submitting.submit_all(db, [new := waiter(one.id)], NOW, NOW)
    assert answers[0].due == NOW
    assert (await row(db, new.id)).waits_for is None
    last = await waiting_for(db, one.id, two.id)
    assert (await row(db, last)).waits_for == [two.id]
    await record(db, [ended(two)], LATER)
    assert (await row(db, last)).waits_for is None


async def test_what_cannot_be_waited_for_is_refused(db: Database) -> None:
    failed, cancelled = await claimed(db, 2, max_retries=0)
    await record(db, [ended(failed, "failed")], NOW)
    await tasks.cancel(db, cancelled.id, NOW)
    (periodic,) = await submit(db, schedule='{"every": 60}', interval=timedelta(seconds=60))
    unknown = uuid4()
    new = waiter(failed.id, cancelled.id, periodic.id, unknown)
    with pytest.raises(CannotWaitError) as refused:
        await submitting.submit_all(db, [new], NOW, NOW)
    assert set(refused.value.reasons) == {failed.id, cancelled.id, periodic.id, unknown}
    assert await tasks.get(db, [new.id]) == {}
    assert await query(db, "select from task_waits") == []


async def test_one_of_the_same_batch_may_be_waited_for(db: Database) -> None:
    first, second = new_task(own_id=True), new_task(own_id=True)
    ids = await submit_all(db, first, second, waiter(first.id, second.id))
    assert set((await row(db, ids[2])).waits_for or []) == {first.id, second.id}


async def test_a_submission_in_the_moment_of_the_end_is_never_left_waiting(db: Database) -> None:
    """A lost race would leave it waiting for a task that has ended."""
    for _ in range(25):
        (one,) = await claimed(db, max_retries=0)
        end = ended(one) if _ % 2 else ended(one, "failed")
        new = [waiter(one.id) for _ in range(4)]
        answers = await asyncio.gather(
            *(submitting.submit_all(db, [task], NOW, NOW) for task in new[:2]),
            record(db, [end], LATER),
            *(submitting.submit_all(db, [task], NOW, NOW) for task in new[2:]),
            return_exceptions=True,
        )
        assert all(isinstance(a, list | tuple | CannotWaitError) for a in answers), answers
        found = await tasks.get(db, [task.id for task in new])
        assert all(task.waits_for is None for task in found.values())
    assert await query(db, "select from task_waits") == []


async def test_a_cancel_in_that_moment_leaves_nobody_waiting(db: Database) -> None:
    async def cancel(task_id: UUID) -> None:
        while await tasks.cancel(db, task_id, LATER) is None:
            pass

    for _ in range(25):
        (one,) = await submit(db)
        new = [waiter(one.id) for _ in range(4)]
        await asyncio.gather(
            *(submitting.submit_all(db, [task], NOW, NOW) for task in new[:2]),
            cancel(one.id),
            *(submitting.submit_all(db, [task], NOW, NOW) for task in new[2:]),
            return_exceptions=True,
        )
        found = await tasks.get(db, [task.id for task in new])
        assert all(task.waits_for is None for task in found.values())
    assert await query(db, "select from task_waits") == []


async def test_who_begins_to_wait_behind_the_view_of_an_end_is_seen(db: Database) -> None:
    """The end of the task waits for the lock of a submission that it could not see when it began."""
    (one,) = await claimed(db)
    new, held = waiter(one.id), asyncio.Event()
    go_on = asyncio.Event()

    async def hold(_: Any) -> None:
        held.set()
        await go_on.wait()

    submission = asyncio.create_task(submitting.submit_all(db, [new], NOW, NOW, also=hold))
    await held.wait()
    recording = asyncio.create_task(record(db, [ended(one)], LATER))
    await locked(db)
    go_on.set()
    await asyncio.gather(submission, recording)
    assert (await row(db, new.id)).waits_for is None
    assert await statuses(db, [one.id]) == ["completed"]


async def locked(db: Database) -> None:
    """Wait until a session waits for a lock."""
    sql = (
        "select count(*) as number from pg_stat_activity "
        "where wait_event_type = 'Lock' and datname = current_database()"
    )

    async def is_locked() -> bool:
        return bool((await query(db, sql))[0]["number"])

    await wait_for(is_locked, 60, "a session waits for a lock")


@pytest.mark.parametrize("act", ["cancel", "expire"])
async def test_so_it_is_by_a_cancel_and_an_expiry(db: Database, act: str) -> None:
    (one,) = await submit(db, misfire_grace=1)
    new, held, go_on = waiter(one.id), asyncio.Event(), asyncio.Event()

    async def hold(_: Any) -> None:
        held.set()
        await go_on.wait()

    async def end() -> Sequence[object] | None:
        if act == "cancel":
            return await tasks.cancel(db, one.id, LATER)
        return (await claims.expire(db, [one], LATER)).ids or None

    submission = asyncio.create_task(submitting.submit_all(db, [new], NOW, NOW, also=hold))
    await held.wait()
    ending = asyncio.create_task(end())
    await locked(db)
    go_on.set()
    await submission
    # It was decided before that task was there: it is to be done again.
    assert await ending is None
    assert (await row(db, new.id)).waits_for == [one.id]
    assert await end() is not None
    assert (await expire(db, new.id)).ids == [new.id]


def test_a_task_waits_for_a_hundred_at_most() -> None:
    assert waits.MOST == 100
