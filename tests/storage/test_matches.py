"""How many tasks fit a filter."""

from datetime import timedelta

import pytest
from store_rig import NOW, claimed, query, submit

from duly.storage import matches
from duly.storage.database import Database
from duly.storage.listing import Filter
from duly.storage.matches import Matches


async def test_few_are_counted(db: Database) -> None:
    await submit(db, 5, queue="a")
    await submit(db, 3, queue="b", created_at=NOW + timedelta(seconds=1))
    (one,) = await claimed(db, queue="a")
    await query(
        db,
        "insert into finished_tasks select (jsonb_populate_record(null::finished_tasks,"
        ' to_jsonb(t) || \'{"status": "failed", "finished_at": "2026-11-29T12:00:00Z"}\')).*'
        " from tasks t where id = $1",
        one.id,
    )
    await query(db, "delete from tasks where id = $1", one.id)
    assert await matches.count(db, Filter(queue="a"), NOW) == Matches(6, exact=True)
    assert await matches.count(db, Filter(queue="a"), NOW, finished=False) == Matches(5, exact=True)
    assert await matches.count(db, Filter(queue="b"), NOW) == Matches(0, exact=True)
    assert await matches.count(db, Filter(id=one.id), NOW) == Matches(1, exact=True)


async def test_many_are_estimated_from_some_pages(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 20_000
    await query(
        db,
        "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
        " select gen_random_uuid(), 't', 'q' || n % 4, '1', $1::timestamptz, $1, $1, $1"
        " from generate_series(1, $2::int) n",
        NOW, total,
    )  # fmt: skip
    await query(db, "vacuum analyze tasks")
    monkeypatch.setattr(matches, "COUNTED_MAX", 1_000)
    monkeypatch.setattr(matches, "_SAMPLED_BYTES", 150 * 8192)
    found = await matches.count(db, Filter(queue="q1"), NOW)
    assert not found.exact
    assert found.total == pytest.approx(total / 4, rel=0.3)
    # What was counted is the least.
    assert (await matches.count(db, Filter(queue="q1"), NOW - timedelta(days=1))).total == 0
