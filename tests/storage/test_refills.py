"""The best of what is due of a queue: exact by priority and due time, whatever there is beside it."""

import hashlib
import itertools
import random
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from plans import plan, ways
from store_rig import NOW, new_task, opened, query

from duly.storage import slots, submitting
from duly.storage.database import Database
from duly.storage.queries import statements
from duly.storage.slots import SLOTS

ALL = range(SLOTS)


async def put(db: Database, **lists: list[Any]) -> None:
    """Tasks whose fields are the elements of these lists, one of each."""
    new = [
        new_task(**dict(zip(lists, values, strict=True)))
        for values in zip(*lists.values(), strict=True)
    ]
    await submitting.submit(db, new, NOW, NOW)


def before(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


async def test_the_best_of_each_length_are_exact(db: Database) -> None:
    chance = random.Random(5)
    count = 3000
    await put(
        db,
        due=[before(chance.uniform(-20, 100)) for _ in range(count)],
        priority=[chance.choice([5, 5, 5, 0, 3, 7, 9]) for _ in range(count)],
        queue=[chance.choice("ab") for _ in range(count)],
        concurrency_key=[chance.choice([None, None, "k", "l"]) for _ in range(count)],
        fairness_key=[chance.choice([None, "f"]) for _ in range(count)],
    )
    for owned, without, unfair, limit, since in itertools.product(
        (ALL, range(40, 90)),
        ([], ["k"], None),
        (False, True),
        (1, 30, 400, 5000),
        (None, before(40)),
    ):
        best = await slots.due_best(db, owned, "a", NOW, limit, without, since, unfair=unfair)
        rows = await query(
            db,
            "select id, priority, next_run_at from tasks where queue = 'a' and slot = any($1)"
            " and next_run_at <= $2 and (concurrency_key is null or concurrency_key <> all($3))"
            " and (not $4 or fairness_key is null)"
            " and (priority <> 5 or next_run_at >= coalesce($5, '-infinity'::timestamptz))"
            " order by priority desc, next_run_at",
            list(owned), NOW, without, unfair, since,
        )  # fmt: skip
        expected = [UUID(bytes=row["id"].bytes) for row in rows]
        assert [row.id for row in best.rows] == expected[:limit]
        assert best.complete == (len(expected) < limit)


async def test_what_crowds_in_one_slot_lets_nothing_be_taken_for_the_best(db: Database) -> None:
    """Tasks of a slot that are due before all others: more of them than are read of one slot."""
    crowd = [one for one in (uuid4() for _ in range(60_000)) if slot_of(one) == 7][:120]
    others = [one for one in (uuid4() for _ in range(300)) if slot_of(one) != 7]
    await put(
        db,
        id=crowd + others,
        due=[before(100)] * 40 + [before(90)] * 80 + [before(95)] * 60 + [before(1)] * (len(others) - 60),
    )  # fmt: skip
    found: list[UUID] = []
    seen = []
    while True:
        best = await slots.due_best(db, ALL, "default", NOW, 200)
        assert best.rows
        dues = [row.next_run_at for row in best.rows]
        assert dues == sorted(dues)
        seen += dues
        found += [row.id for row in best.rows]
        if best.complete:
            break
        await query(db, "delete from tasks where id = any($1)", [row.id for row in best.rows])
    assert seen == sorted(seen)
    assert sorted(found) == sorted(crowd + others)


def slot_of(task_id: UUID) -> int:
    return hashlib.sha256(task_id.bytes).digest()[0]


@pytest.mark.parametrize("name", ["due_best", "due_of_key"])
async def test_a_refill_sorts_no_more_than_it_reads_of_each_slot(
    fresh_database: str, name: str
) -> None:
    """However much is due: a limit is nearer to each reading of the tasks than a sort."""
    async with opened(fresh_database, statement_timeout_s=120.0) as db:
        await query(
            db,
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at,"
            " occurrence, priority, concurrency_key)"
            " select gen_random_uuid(), 't', 'q', '{}', $1::timestamptz - n * interval '1 ms', $1,"
            " $1, $1, case when n % 10 = 0 then 9 - n / 10 % 10 else 5 end,"
            " case when n % 3 = 0 then 'k' end"
            " from generate_series(1, 50000) n",
            NOW,
        )
        await query(db, "vacuum analyze tasks")
        found = []

        async def look(connection: Any) -> None:
            found.append(await plan(connection, statements()[name]))

        await db.run(look)
    readings = list(ways(found[0], "tasks"))
    assert readings
    for way in readings:
        sorts = [at for at, kind in enumerate(way) if kind in ("Sort", "Incremental Sort")]
        limits = [at for at, kind in enumerate(way) if kind == "Limit"]
        assert limits, way
        assert all(at < limits[-1] for at in sorts), way
