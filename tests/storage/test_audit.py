"""The audit log in the store: its order, and that no question reads all of it."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from store_rig import NOW, query, submit

from duly.storage import audit, tasks, upkeep
from duly.storage.audit import Filter, Note
from duly.storage.database import Database


async def fill(db: Database, count: int) -> None:
    """Changes of as many people and tasks, the newest first in time, over two days."""
    await upkeep.make_partitions(db, NOW.date())

    async def work(connection: Any) -> None:
        await connection.execute(
            "insert into audit (at, who, role, action, task_id) "
            "select $1::timestamptz - i * interval '1 minute', 'w' || i, 'submit', 'a' || i,"
            "       lpad(to_hex(i), 32, '0')::uuid from generate_series(1, $2::int) i",
            NOW,
            count,
        )
        await connection.execute("analyze audit")

    await db.run(work)


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (Filter(), "_pkey"),
        (Filter(who="w700"), "_who_at_id_idx"),
        (Filter(action="a700"), "_action_at_id_idx"),
        (Filter(task_id=UUID(int=700)), "_task_id_at_id_idx"),
        (Filter(before=NOW - timedelta(hours=30), since=NOW - timedelta(hours=40)), "_pkey"),
    ],
)
async def test_every_question_is_answered_from_an_index(
    db: Database, where: Filter, index: str
) -> None:
    await fill(db, 2_880)
    sql = f"explain {Database.sql('notes')}"
    plan = "\n".join(row[0] for row in await db.run(lambda c: c.fetch(sql, *where, None, None, 51)))
    read = [line for line in plan.splitlines() if " on audit_2026112" in line]
    assert read, plan
    assert all(index in line for line in read), plan
    assert len(await audit.notes(db, where, None, 51)) >= 1


async def test_those_of_one_instant_are_in_the_order_in_which_they_were_made(db: Database) -> None:
    await upkeep.make_partitions(db, NOW.date())
    (one,) = await submit(db)
    for number in range(5):
        note = Note(f"w{number}", "submit", "change")
        await tasks.patch(db, one.id, tasks.Change(priority=number), None, NOW, note=note)
    found = await audit.notes(db, Filter(), None, 3)
    assert [row.who for row in found] == ["w4", "w3", "w2"]
    rest = await audit.notes(db, Filter(), (found[-1].at, found[-1].id), 3)
    assert [row.who for row in rest] == ["w1", "w0"]


async def test_without_a_note_nothing_is_written(db: Database) -> None:
    (one,) = await submit(db)
    assert await tasks.cancel(db, one.id, NOW) is not None
    assert await query(db, "select from audit") == []
