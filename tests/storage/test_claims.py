"""Claims: one wins, none by the wrong owner, tokens only grow."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from postgres_pair import PostgresPair
from store_rig import (
    ME,
    NOW,
    again,
    claimed,
    ended,
    new_task,
    opened,
    own_all,
    query,
    statuses,
    submit,
)
from waiting import wait_for

from duly.storage import claims, slots, submitting
from duly.storage.claims import Claim
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.migrate import migrate
from duly.storage.slots import DueRow


async def claim(db: Database, rows: list[DueRow], epochs: dict[int, int], **more: Any) -> Claim:
    options = {"owner": ME, "now": NOW, **more}
    return await claims.claim(db, entries=rows, epochs=epochs, **options)


async def test_a_claim_wins_once(db: Database) -> None:
    epochs, rows = await own_all(db), await submit(db, 50)
    both = await asyncio.gather(claim(db, rows, epochs), claim(db, rows, epochs))
    ids = [task.id for one in both for task in one.tasks]
    assert sorted(ids) == sorted(row.id for row in rows)
    assert {task.token for one in both for task in one.tasks} == {1}


async def test_another_version_is_not_claimed(db: Database) -> None:
    epochs, (row,) = await own_all(db), await submit(db)
    answer = await claim(db, [row._replace(version=1)], epochs)
    assert answer == Claim(owned=True, tasks=[])


async def test_a_paused_task_is_not_claimed(db: Database) -> None:
    epochs, rows = await own_all(db), await submit(db, 2)
    await query(db, "update tasks set paused = true where id = $1", rows[0].id)
    answer = await claim(db, rows, epochs)
    assert [task.id for task in answer.tasks] == [rows[1].id]


async def test_one_stale_epoch_refuses_the_whole_batch(db: Database) -> None:
    epochs, rows = await own_all(db), await submit(db, 20)
    assert len({row.slot for row in rows}) > 1
    await slots.take(db, [rows[0].slot], "node-b", NOW)
    assert await claim(db, rows, epochs) == Claim(owned=False, tasks=[])
    assert set(await statuses(db, [row.id for row in rows])) == {"pending"}


async def test_epochs_only_grow(db: Database) -> None:
    first, second = await own_all(db), await own_all(db, "node-b")
    assert {slot: epoch + 1 for slot, epoch in first.items()} == second


class TestPromotion:
    """What a promotion may have lost does not come again."""

    async def test_tokens_and_epochs_jump_at_once(self, postgres_pair: PostgresPair) -> None:
        pair = postgres_pair
        await migrate(pair.primary.url)
        async with opened(pair.primary.url) as db:
            rows = await submit(db, 3)
            pair.synchronous(False)
            pair.standby.kill9()
            # Nobody but the old primary will ever know of these.
            lost_epochs = await own_all(db)
            lost = await claim(db, rows, lost_epochs)
            assert {task.token for task in lost.tasks} == {1}
            pair.primary.kill9()
        pair.standby.restart()
        pair.promote()
        async with opened(pair.primary.url) as db:
            assert set(await statuses(db, [row.id for row in rows])) == {"pending"}
            assert await claim(db, rows, lost_epochs) == Claim(owned=False, tasks=[])
            epochs = await own_all(db, "node-b")
            assert {epoch >> 40 for epoch in epochs.values()} == {1}
            # A row that has reached more keeps on counting from there.
            far = rows[0]._replace(version=1 << 41)
            await query(db, "update tasks set version = $2 where id = $1", far.id, far.version)
            again = await claim(db, [far, *rows[1:]], epochs, owner="node-b")
            jumped = (1 << 40) + 1
            assert sorted(task.token for task in again.tasks) == [jumped, jumped, (1 << 41) + 1]


@pytest.mark.parametrize("text", ["x" * 200_000, "".join(map(str, range(35_000)))])
async def test_large_payloads_come_whole_but_not_with_the_claim(db: Database, text: str) -> None:
    """Also those that are small as stored: 200,000 times the same letter."""
    epochs, rows = await own_all(db), await submit(db, 3, payload=f'{{"text": "{text}"}}')
    rows += await submit(db, 3)
    answered: list[int] = []

    async def fetch(name: str, *args: Any) -> list[Any]:
        found = await Database.fetch(db, name, *args)
        if name == "claim":
            answered.extend(len(row["payload"] or "") for row in found)
        return found

    db.fetch = fetch  # type: ignore[method-assign]  # looks at one answer
    answer = await claim(db, rows, epochs)
    assert sum(answered) < claims.INLINE_BYTES
    assert sorted(len(task.payload) for task in answer.tasks)[3:] == [len(text) + 12] * 3


async def test_a_claim_whose_payloads_do_not_come_is_in_doubt(db: Database) -> None:
    epochs, rows = await own_all(db), await submit(db, 1, payload=f'"{"x" * 100_000}"')

    async def fetch(name: str, *args: Any) -> list[Any]:
        if name == "payloads":
            raise StoreUnavailableError("gone")
        return await Database.fetch(db, name, *args)

    db.fetch = fetch  # type: ignore[method-assign]  # a fault between two statements
    with pytest.raises(StoreUnavailableError) as caught:
        await claim(db, rows, epochs)
    assert caught.value.in_doubt
    (found,) = await claims.claimed_by(db, ME, rows, NOW)
    assert (found.token, len(found.payload)) == (1, 100_002)
    assert await claims.claimed_by(db, "node-b", rows, NOW) == []
    # An earlier claim of ours, whose task somebody has by now, is not the one in doubt.
    assert await claims.claimed_by(db, ME, rows, NOW + timedelta(seconds=1)) == []


async def test_what_is_later_than_its_grace_is_not_claimed_but_expires(db: Database) -> None:
    epochs = await own_all(db)
    (late,) = await submit(db, misfire_grace=60.0)
    (patient,) = await submit(db, misfire_grace=61.0)
    now = NOW + timedelta(seconds=61)
    answer = await claim(db, [late, patient], epochs, now=now)
    assert [task.id for task in answer.tasks] == [patient.id]
    assert await claims.expire(db, [late._replace(version=7)], now) == claims.Expired([], [])
    assert (await claims.expire(db, [late, patient], now)).ids == [late.id]
    assert await statuses(db, [late.id]) == ["failed"]
    rows = await query(db, "select outcome, error, token from runs where task_id = $1", late.id)
    assert [tuple(row) for row in rows] == [("skipped", '"expired"', 1)]


async def test_the_grace_is_about_occurrences_not_about_retries(db: Database) -> None:
    (task,) = await claimed(db, misfire_grace=60.0)
    failure = again(ended(task, "failed"), NOW)
    (settled,) = await claims.settle(db, [failure], NOW)
    assert settled.due is not None
    late = NOW + timedelta(seconds=61)
    answer = await claim(db, [settled.due], await own_all(db), now=late)
    assert [one.id for one in answer.tasks] == [task.id]


class TestTheBarrier:
    """The two interleavings of a claim and a take-over: whichever comes first, the other waits."""

    @pytest.fixture
    async def row(self, db: Database) -> DueRow:
        return (await submit(db))[0]

    async def blocked(self, db: Database, count: int = 1) -> None:
        async def waiting() -> bool:
            rows = await query(
                db,
                "select from pg_stat_activity where wait_event_type = 'Lock'"
                " and datname = current_database()",
            )
            return len(rows) == count

        await wait_for(waiting, 60, f"{count} statements wait for a lock")

    async def test_a_take_over_leaves_a_slot_to_the_claim_that_holds_it(
        self, db: Database, row: DueRow
    ) -> None:
        epochs = await own_all(db)
        held, release = asyncio.Event(), asyncio.Event()

        async def hold_the_task(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("select from tasks where id = $1 for update", row.id)
                held.set()
                await release.wait()

        holder = asyncio.create_task(db.run(hold_the_task))
        await held.wait()
        claiming = asyncio.create_task(claim(db, [row], epochs))
        await self.blocked(db)  # it has the slot's lock, and waits for the task's
        other = (row.slot + 1) % slots.SLOTS
        taken = await slots.take(db, [row.slot, other], "node-b", NOW)
        assert taken == slots.Taken({other: epochs[other] + 1}, {row.slot: ME})
        release.set()
        answer, _ = await asyncio.gather(claiming, holder)
        assert [task.id for task in answer.tasks] == [row.id]
        taken = await slots.take(db, [row.slot], "node-b", NOW)
        assert taken == slots.Taken({row.slot: epochs[row.slot] + 1}, {})

    async def test_a_claim_waits_for_a_take_over_and_then_claims_nothing(
        self, db: Database, row: DueRow
    ) -> None:
        epochs = await own_all(db)
        held, release = asyncio.Event(), asyncio.Event()

        async def take_slowly(connection: Any) -> None:
            async with connection.transaction():
                await connection.fetch(db.sql("take_slots"), [row.slot], "node-b", NOW, [])
                held.set()
                await release.wait()

        taking = asyncio.create_task(db.run(take_slowly))
        await held.wait()
        claiming = asyncio.create_task(claim(db, [row], epochs))
        await self.blocked(db)
        release.set()
        await taking
        assert await claiming == Claim(owned=False, tasks=[])
        assert await statuses(db, [row.id]) == ["pending"]


async def test_what_is_due_comes_by_slot_in_order_after_its_cursor(db: Database) -> None:
    new = [new_task(due=NOW + timedelta(seconds=n)) for n in range(40)]
    answers = await submitting.submit(db, new, NOW, NOW)
    slot = answers[0].slot
    assert slot is not None
    mine = {answer.id for answer in answers if answer.slot == slot}
    everything = slots.Cursor(NOW - timedelta(days=1), new[0].id)
    found, more = await slots.due(db, {slot: everything}, NOW + timedelta(seconds=60), 100)
    assert [row.id for row in found] == [one.id for one in new if one.id in mine]
    assert more == {}
    after = slots.Cursor(found[0].next_run_at, found[0].id)
    minute = NOW + timedelta(seconds=60)
    assert (await slots.due(db, {slot: after}, minute, 100)).rows == found[1:]
    assert await slots.due(db, {slot: everything}, minute, 1) == ([found[0]], {slot: after})
    assert await slots.due(db, {slot: everything}, NOW, 100) == ([], {})
    assert await slots.due(db, {slot: everything}, NOW + timedelta(60), 100, ["default"]) == (
        [],
        {},
    )


async def test_of_what_is_left_out_only_so_much_is_looked_at(db: Database) -> None:
    """However much of a paused queue is due, each look is short, and the looks get past it."""
    rows = [
        await submit(db, 1, due=NOW + timedelta(seconds=n), queue="other" if n >= 36 else "held")
        for n in range(40)
    ]
    ((first,), *_) = rows
    await query(db, "alter table tasks alter column slot drop expression")
    await query(db, "update tasks set slot = $1", first.slot)
    slot, minute = first.slot, NOW + timedelta(seconds=60)
    cursors = {slot: slots.Cursor(NOW - timedelta(days=1), first.id)}
    looks, found = 0, []
    while cursors:
        page = await slots.due(db, cursors, minute, 2, ["held"])
        assert len(page.rows) <= 2
        found += [row.id for row in page.rows]
        cursors, looks = page.more, looks + 1
    assert found == [row.id for (row,) in rows if row.queue == "other"]
    assert looks == 5  # sixteen rows at a time, then two wanted ones, twice, and none
    later = await slots.due(
        db,
        {slot: slots.Cursor(NOW, first.id)},
        minute,
        50,
        ["held"],
        (),
        NOW + timedelta(seconds=30),
    )
    wanted = [
        row
        for (row,) in rows
        if row.queue == "other" or row.next_run_at > NOW + timedelta(seconds=30)
    ]
    assert [row.id for row in later.rows] == [row.id for row in wanted]


async def test_running_rows_come_page_by_page(db: Database) -> None:
    epochs = await own_all(db)
    rows = await submit(db, 30)
    for at in range(0, 30, 10):
        await claim(db, rows[at : at + 10], epochs, now=NOW + timedelta(seconds=at))
    before, found = NOW + timedelta(seconds=20), []
    after: slots.RunningRow | None = None
    while page := await slots.running_since(db, range(256), before, 3, after):
        found += page
        after = page[-1]
    assert [row.id for row in found[:10]] == sorted(row.id for row in rows[:10])
    assert {row.id for row in found} == {row.id for row in rows[:20]}
    assert len(found) == 20
