"""Claims of tasks with concurrency keys, on a real store: never more than the limit, whoever races."""

import asyncio
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from store_rig import ME, NOW, again, ended, own_all, query, statuses, submit
from waiting import wait_for

from duly.storage import claims, tasks
from duly.storage.claims import Claim
from duly.storage.database import Database
from duly.storage.slots import DueRow
from duly.storage.tasks import Change


async def keyed(
    db: Database, count: int, key: str = "k", limit: int = 3, **more: Any
) -> list[DueRow]:
    rows = await submit(db, count, concurrency_key=key, concurrency_limit=limit, **more)
    return [row._replace(concurrency_key=key) for row in rows]


async def running(db: Database) -> Counter[str]:
    rows = await query(db, "select concurrency_key as key from tasks where status = 'running'")
    return Counter(row["key"] for row in rows)


async def claim(db: Database, rows: list[DueRow], epochs: dict[int, int]) -> Claim:
    return await claims.claim_in_turn(db, ME, rows, epochs, NOW)


async def test_the_first_that_have_room_are_claimed_and_the_others_are_told(db: Database) -> None:
    rows = await keyed(db, 5) + await keyed(db, 1, "other", 1)
    epochs = await own_all(db)
    answer = await claim(db, rows, epochs)
    assert answer.owned
    assert {task.id for task in answer.tasks} == {row.id for row in (*rows[:3], rows[5])}
    assert answer.held == {row.id: "full" for row in rows[3:5]}
    assert (await claim(db, rows[3:5], epochs)).held == answer.held
    await claims.complete(db, [ended(answer.tasks[0])], NOW)
    freed = await claim(db, rows[3:5], epochs)
    assert [task.id for task in freed.tasks] == [rows[3].id]
    assert freed.held == {rows[4].id: "full"}


async def test_each_task_has_its_own_limit(db: Database) -> None:
    rows = await keyed(db, 1, limit=1) + await keyed(db, 1, limit=1) + await keyed(db, 2, limit=3)
    answer = await claim(db, rows, await own_all(db))
    assert [task.id for task in answer.tasks] == [rows[0].id, rows[2].id, rows[3].id]
    assert answer.held == {rows[1].id: "full"}


async def test_what_cannot_be_claimed_takes_no_place(db: Database) -> None:
    paused, late, good = (
        (await keyed(db, 1, limit=1))[0],
        (await keyed(db, 1, limit=1, misfire_grace=1.0, due=NOW - timedelta(seconds=9)))[0],
        (await keyed(db, 1, limit=1))[0],
    )
    await query(db, "update tasks set paused = true where id = $1", paused.id)
    epochs = await own_all(db)
    first = await claim(db, [paused, late, good], epochs)
    assert (first.tasks, first.held) == (
        [],
        {good.id: "full"},
    )  # a place was counted for the late one
    assert (await claims.expire(db, [late], NOW)).ids == [late.id]
    assert len((await claim(db, [paused, good], epochs)).tasks) == 1


async def test_no_claim_of_slots_that_are_not_ours_nor_of_old_versions(db: Database) -> None:
    rows = await keyed(db, 2)
    epochs = await own_all(db)
    later = await own_all(db, "node-b")
    refused = await claim(db, rows, epochs)
    assert (refused.owned, refused.tasks) == (False, [])
    old = [row._replace(version=7) for row in rows]
    answer = await claim(db, old, later)
    assert (answer.owned, answer.tasks, answer.held) == (True, [], {})
    renamed = [row._replace(concurrency_key="x") for row in rows]
    assert (await claim(db, renamed, later)).tasks == []


async def test_a_key_whose_lock_another_claim_has_is_busy_and_is_not_waited_for(
    db: Database,
) -> None:
    mine, other = await keyed(db, 1), await keyed(db, 1, "other")
    epochs = await own_all(db)

    async def hold(connection: Any) -> Claim:
        async with connection.transaction():
            await connection.execute(
                "select pg_advisory_xact_lock(hashtextextended('k', 1685417081))"
            )
            return await claim(db, mine + other, epochs)

    answer = await db.run(hold)
    assert [task.id for task in answer.tasks] == [other[0].id]
    assert answer.held == {mine[0].id: "busy"}
    assert len((await claim(db, mine, epochs)).tasks) == 1


async def race(db: Database, rows: list[DueRow], epochs: dict[int, int], seed: int) -> None:
    """Eight claimers and an ender at once, until all has run; the count is looked at all the while."""
    rng = random.Random(seed)
    waiting = {row.id: row for row in rows}
    under_way: list[Any] = []
    looks = []

    async def work() -> None:
        while waiting:
            some = rng.sample(sorted(waiting.values()), min(len(waiting), rng.randint(1, 8)))
            answer = await claim(db, some, epochs)
            for task in answer.tasks:
                waiting.pop(task.id)
                under_way.append(task)
            if under_way and rng.random() < 0.6:
                task = under_way.pop(rng.randrange(len(under_way)))
                if rng.random() < 0.5:
                    await claims.complete(db, [ended(task)], NOW)
                else:
                    end = again(ended(task, "failed"), NOW, counts=False)
                    ((_, due, *_),) = await claims.settle(db, [end], NOW)
                    assert due is not None
                    waiting[task.id] = due
            looks.append(await running(db))

    await asyncio.gather(*(work() for _ in range(8)))
    for look in looks:
        assert look["k"] <= 3, "a fourth ran"
        assert look["one"] <= 1
    assert max(look["k"] for look in looks) == 3


@pytest.mark.parametrize("seed", range(3))
async def test_racing_claims_never_exceed_a_limit(db: Database, seed: int) -> None:
    rows = await keyed(db, 40) + await keyed(db, 20, "one", 1)
    await race(db, rows, await own_all(db), seed)


@pytest.mark.parametrize("lock", [True, False])
async def test_it_is_the_lock_that_keeps_two_claims_apart(db: Database, lock: bool) -> None:
    """One claim looks while another has not committed: without the lock both would find room."""
    rows = await keyed(db, 6)
    epochs = await own_all(db)
    if not lock:
        (found,) = await query(db, "select pg_get_functiondef('duly_room'::regproc) as text")
        await query(db, found["text"].replace("pg_try_advisory_xact_lock(", "(0 <> "))

    async def work(connection: Any) -> Claim:
        async with connection.transaction():
            slots = sorted({row.slot for row in rows[:3]})
            await connection.fetch(
                Database.sql("claim_in_turn"), [r.id for r in rows[:3]], [0] * 3, ME, slots,
                [epochs[slot] for slot in slots], NOW, 1000, ["k"] * 3, None,
            )  # fmt: skip
            return await claim(db, rows[3:], epochs)

    beside = await db.run(work)
    assert set(beside.held.values()) == ({"busy"} if lock else set())
    assert (await running(db))["k"] == (3 if lock else 6)


async def test_without_room_no_slot_is_locked(db: Database) -> None:
    rows = await keyed(db, 4)
    epochs = await own_all(db)
    await claim(db, rows[:3], epochs)

    async def take_over(connection: Any) -> Claim:
        async with connection.transaction():
            await connection.execute("select from slots for update")
            return await claim(db, rows[3:], epochs)

    assert await db.run(take_over) == Claim(True, [], {rows[3].id: "full"})


async def test_who_holds_a_key_is_told(db: Database) -> None:
    rows = await keyed(db, 4, limit=2)
    answer = await claim(db, rows, await own_all(db))
    assert set(await claims.key_holders(db, rows[3].id)) == {task.id for task in answer.tasks}
    plain = await submit(db)
    assert await claims.key_holders(db, plain[0].id) == []


async def test_keys_come_along_through_every_table(db: Database) -> None:
    (row,) = await keyed(db, 1, limit=2, fairness_key="f")
    answer = await claim(db, [row], await own_all(db))
    task = answer.tasks[0]
    (done,) = await claims.settle(db, [again(ended(task, "failed"), NOW)], NOW)
    assert done.freed_key == "k"
    assert done.due is not None
    assert (done.due.concurrency_key, done.due.fairness_key) == ("k", "f")
    cancelled = await tasks.cancel(db, row.id, NOW)
    assert cancelled is not None
    stored = (await tasks.get(db, [row.id]))[row.id]
    assert (stored.concurrency_key, stored.concurrency_limit, stored.fairness_key) == ("k", 2, "f")
    assert await statuses(db, [row.id]) == ["cancelled"]


async def test_a_change_of_keys(db: Database) -> None:
    (row,) = await submit(db)
    given = Change(
        set_concurrency_key=True, concurrency_key="a", set_fairness_key=True, fairness_key="f"
    )
    seen = []
    for change in (
        given,
        Change(set_concurrency_key=True, concurrency_key="b", concurrency_limit=4),
        Change(set_concurrency_key=True, concurrency_key="c"),
        Change(set_concurrency_key=True, set_fairness_key=True),
    ):
        done = await tasks.patch(db, row.id, change, None, NOW)
        assert done is not None
        seen.append((done.row.concurrency_key, done.row.concurrency_limit, done.row.fairness_key))
        assert done.waiting.due.concurrency_key == done.row.concurrency_key
    assert seen == [("a", 1, "f"), ("b", 4, "f"), ("c", 4, "f"), (None, None, None)]


async def test_another_isolation_is_refused(db: Database) -> None:
    rows = await keyed(db, 1)
    epochs = await own_all(db)

    async def work(connection: Any) -> None:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetch(
                Database.sql("claim_in_turn"), [rows[0].id], [0], ME, [rows[0].slot],
                [epochs[rows[0].slot]], NOW, 1000, ["k"], None,
            )  # fmt: skip

    with pytest.raises(Exception, match="read committed"):
        await db.run(work)


async def limit_queue(db: Database, limit: int | None, queue: str = "default") -> None:
    await query(
        db,
        "insert into queues (queue, max_in_flight, updated_at) values ($1, $2, $3) "
        "on conflict (queue) do update set max_in_flight = excluded.max_in_flight",
        queue, limit, NOW,
    )  # fmt: skip


async def test_max_in_flight_counts_all_that_run_in_the_queue_however_claimed(db: Database) -> None:
    rows = await submit(db, 6)
    epochs = await own_all(db)
    before = await claims.claim(db, ME, rows[:2], epochs, NOW)  # before there was a limit
    await limit_queue(db, 3)
    await submit(db, 1, queue="other")

    async def in_turn(some: list[DueRow]) -> Claim:
        return await claims.claim_in_turn(db, ME, some, epochs, NOW, "default")

    answer = await in_turn(rows[2:])
    assert [task.id for task in answer.tasks] == [rows[2].id]
    assert answer.held == {row.id: "queue_full" for row in rows[3:]}
    assert await claims.in_flight(db, "default") == 3
    await claims.complete(db, [ended(before.tasks[0])], NOW)
    assert [task.id for task in (await in_turn(rows[3:])).tasks] == [rows[3].id]
    await limit_queue(db, 1)
    assert (await in_turn(rows[4:])).tasks == []
    await limit_queue(db, None)
    assert len((await in_turn(rows[4:])).tasks) == 2


async def test_a_key_and_a_queue_limit_both_hold(db: Database) -> None:
    rows = await keyed(db, 3, limit=2) + await submit(db, 3)
    await limit_queue(db, 3)
    answer = await claims.claim_in_turn(db, ME, rows, await own_all(db), NOW, "default")
    assert {task.id for task in answer.tasks} == {rows[0].id, rows[1].id, rows[3].id}
    assert answer.held == {rows[2].id: "full", rows[4].id: "queue_full", rows[5].id: "queue_full"}


async def test_a_queue_whose_lock_another_claim_has_is_busy(db: Database) -> None:
    rows = await submit(db, 2)
    await limit_queue(db, 1)
    epochs = await own_all(db)

    async def hold(connection: Any) -> Claim:
        async with connection.transaction():
            await connection.execute(
                "select pg_advisory_xact_lock(hashtextextended('default', 1685417082))"
            )
            return await claims.claim_in_turn(db, ME, rows, epochs, NOW, "default")

    answer = await db.run(hold)
    assert answer.tasks == []
    assert set(answer.held.values()) == {"queue_busy"}


async def someone_waits(db: Database) -> None:
    look = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    await wait_for(lambda: query(db, look), 60, "a statement waits for a lock")


async def test_what_was_claimed_since_the_statement_began_counts_and_is_not_claimed_again(
    db: Database,
) -> None:
    rows = await submit(db, 3)
    await limit_queue(db, 2)
    epochs = await own_all(db)

    async def work(connection: Any) -> Claim:
        async with connection.transaction():
            await connection.execute("lock table queues")  # where the count waits
            asked = claims.claim_in_turn(
                db, ME, [rows[1], rows[2], rows[0]], epochs, NOW, "default"
            )
            answer = asyncio.create_task(asked)
            await someone_waits(db)
            beside = await claims.claim(db, ME, rows[:1], epochs, NOW)
            assert [task.id for task in beside.tasks] == [rows[0].id]
        return await answer

    answer = await db.run(work)
    assert [task.id for task in answer.tasks] == [rows[1].id]
    assert answer.held == {rows[2].id: "queue_full"}


async def test_what_changes_after_the_count_is_not_claimed(db: Database) -> None:
    rows = await keyed(db, 2)
    epochs = await own_all(db)

    async def work(connection: Any) -> Claim:
        async with connection.transaction():
            await connection.execute("select from slots for update")  # where the claim waits
            answer = asyncio.create_task(claim(db, rows, epochs))
            await someone_waits(db)
            assert await tasks.cancel(db, rows[0].id, NOW)
        return await answer

    answer = await db.run(work)
    assert ([task.id for task in answer.tasks], answer.held) == ([rows[1].id], {})


async def test_racing_claims_never_exceed_max_in_flight(db: Database) -> None:
    rows = await submit(db, 60)
    await limit_queue(db, 4)
    epochs = await own_all(db)
    rng = random.Random(1)
    waiting = {row.id: row for row in rows}
    under_way: list[Any] = []
    looks = []

    async def work() -> None:
        while waiting:
            some = rng.sample(sorted(waiting.values()), min(len(waiting), 5))
            answer = await claims.claim_in_turn(db, ME, some, epochs, NOW, "default")
            for task in answer.tasks:
                waiting.pop(task.id)
                under_way.append(task)
            if under_way and rng.random() < 0.6:
                await claims.complete(db, [ended(under_way.pop())], NOW)
            looks.append(await claims.in_flight(db, "default"))

    await asyncio.gather(*(work() for _ in range(6)))
    assert max(looks) == 4
