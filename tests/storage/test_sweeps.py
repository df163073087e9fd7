"""Looking for what is due by name: all of it, in pages, whatever its slot and queue."""

from datetime import timedelta
from typing import Any

import pytest
from plans import carried_out, plan, steps
from store_rig import ME, NOW, query, submit

from duly.storage import sweeps
from duly.storage.database import Database
from duly.storage.slots import BEGINNING, Cursor, DueRow
from duly.storage.sweeps import Name

MINUTE = NOW + timedelta(seconds=60)
WAITING = 20_000


async def in_one_slot(db: Database, rows: list[DueRow]) -> int:
    """Have these tasks in the slot of the first."""
    await query(db, "alter table tasks alter column slot drop expression")
    await query(db, "update tasks set slot = $1", rows[0].slot)
    return rows[0].slot


def named(rows: list[DueRow]) -> list[Name]:
    return [(row.id.bytes, row.version) for row in rows]


async def test_names_come_by_queue_in_order_and_in_pages(db: Database) -> None:
    rows: list[DueRow] = []
    for number in range(12):
        due = NOW + timedelta(seconds=number)
        rows += await submit(db, 1, due=due, queue="ab"[number % 3 == 0])
    slot = await in_one_slot(db, rows)
    found: dict[str, list[Name]] = {}
    cursors, pages = {slot: BEGINNING}, 0
    while cursors:
        page = await sweeps.sweep(db, cursors, MINUTE, 5)
        for queue, names in page.names.items():
            found.setdefault(queue, []).extend(names)
        cursors, pages = page.more, pages + 1
        if pages == 1:
            assert page.more == {slot: Cursor(rows[4].next_run_at, rows[4].id)}
    assert pages == 3
    by_queue = {queue: [row for row in rows if row.queue == queue] for queue in "ab"}
    assert found == {queue: named(some) for queue, some in by_queue.items()}


async def test_slots_with_little_due_are_read_at_once_and_whole(db: Database) -> None:
    """Of 256 slots, of which most have nothing due, one may have more than its share."""
    rows = await submit(db, 12)
    slot = await in_one_slot(db, rows)
    cursors = dict.fromkeys(range(256), BEGINNING)
    page = await sweeps.sweep(db, cursors, MINUTE, 1)
    in_order = sorted(rows, key=lambda row: (row.next_run_at, row.id))
    assert page.names == {"default": named(in_order)}
    assert page.more == {}
    page = await sweeps.sweep(db, {slot: BEGINNING, (slot + 1) % 256: BEGINNING}, MINUTE, 6)
    assert page.names == {"default": named(in_order[:6])}
    assert page.more == {slot: Cursor(in_order[5].next_run_at, in_order[5].id)}


async def test_names_are_of_what_waits_for_its_time_alone(db: Database) -> None:
    paused, running, later, other, mine = rows = await submit(db, 5)
    slot = await in_one_slot(db, rows)
    await query(db, "update tasks set paused = true where id = $1", paused.id)
    run = "update tasks set status = 'running', owner = $2, claimed_at = $3 where id = $1"
    await query(db, run, running.id, ME, NOW)
    await query(db, "update tasks set next_run_at = $2 where id = $1", later.id, MINUTE)
    await query(db, "update tasks set slot = $2 where id = $1", other.id, (slot + 1) % 256)
    await query(db, "update tasks set version = 1::bigint << 41 where id = $1", mine.id)
    page = await sweeps.sweep(db, {slot: BEGINNING}, MINUTE, 100)
    assert page.names == {"default": [(mine.id.bytes, 1 << 41)]}
    assert page.more == {}


async def test_rows_of_names_are_as_they_are_now(db: Database) -> None:
    rows = await submit(db, 4)
    names = named(rows)
    gone, paused, changed, same = rows
    await query(db, "delete from tasks where id = $1", gone.id)
    await query(db, "update tasks set paused = true where id = $1", paused.id)
    await query(
        db, "update tasks set version = 7, next_run_at = $2 where id = $1", changed.id, MINUTE
    )
    found = await sweeps.pending(db, names)
    assert found == [same, changed._replace(version=7, next_run_at=MINUTE)]


async def pages_read(db: Database, name: str, mode: str, *args: object) -> int:
    """How many pages of 8 kB PostgreSQL has looked at for a statement."""
    plan = await carried_out(db, name, mode, *args)
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["sweep", "count_due"])
async def test_a_look_goes_down_an_index_once_and_for_each_slot_with_something_due(
    db: Database, name: str, mode: str
) -> None:
    """Once for each of 256 slots is 512 pages and more, and more still in a store of millions."""
    await query(
        db,
        "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
        " select gen_random_uuid(), 't', 'q', '{}', $1::timestamptz + n / 2000 * interval '1 h', $1, $1, $1"
        " from generate_series(1, $2::int) n",
        NOW, WAITING,
    )  # fmt: skip
    await query(db, "vacuum analyze tasks")
    every = list(range(256))
    # Nearly 2,000 are due at this very instant: not before it.
    args = (every, NOW, 30_000) if name == "sweep" else (every, NOW - timedelta(microseconds=1))
    assert await pages_read(db, name, mode, *args) < 20
    (due,) = await submit(db, 1, due=NOW - timedelta(seconds=1))
    assert await pages_read(db, name, mode, *args) < 40
    page = await sweeps.sweep(db, dict.fromkeys(every, BEGINNING), NOW, 100)
    assert page.names == {"default": named([due])}


@pytest.mark.parametrize(
    "name",
    [
        "claim",
        "claim_in_turn",
        "count_due",
        "count_tasks",
        "due",
        "due_best",
        "due_but",
        "pending_tasks",
        "sweep",
        "sweep_by_slot",
    ],
)
async def test_indexes_of_waiting_tasks_are_of_no_use_to_others(db: Database, name: str) -> None:
    """They would be read from end to end for each slot, wherever old statistics make that look cheap."""
    await query(db, "drop index tasks_due")

    async def look(connection: Any) -> Any:
        await connection.execute("set enable_seqscan = off")
        return await plan(connection, Database.sql(name))

    used = {step.get("Index Name") for step in steps(await db.run(look))}
    assert used & {"tasks_next", "tasks_waiting_kind"} == (
        {"tasks_next"} if name in ("count_due", "sweep") else set()
    )


async def test_what_is_due_of_a_slot_is_found_behind_much_that_is_due_of_others(
    db: Database,
) -> None:
    """More than what is looked at to tell the slots in which something is due."""
    rows = await submit(db, 1_200)
    mine = (await submit(db, 1, due=NOW + timedelta(seconds=1)))[0]
    others = await in_one_slot(db, [*rows, mine])
    slot = (others + 1) % 256
    await query(db, "update tasks set slot = $2 where id = $1", mine.id, slot)
    page = await sweeps.sweep(db, {slot: BEGINNING}, MINUTE, 100)
    assert page.names == {"default": named([mine])}
    assert page.more == {}
