"""How many tasks come due when: exact while they are few, a fair estimate when they are many."""

from datetime import timedelta
from typing import Any

import pytest
from store_rig import NOW, claimed, query, submit

from duly.storage import load
from duly.storage.database import Database
from duly.storage.load import Series, due_load

MINUTE = timedelta(minutes=1)


async def test_tasks_are_counted_in_the_minute_they_are_due_in(db: Database) -> None:
    for queue, kind, due, count in (
        ("a", "x", NOW - timedelta(microseconds=1), 1),  # overdue
        ("a", "x", NOW, 2),
        ("a", "y", NOW + MINUTE - timedelta(microseconds=1), 3),
        ("b", "y", NOW + MINUTE, 1),
        ("b", "x", NOW + 3 * MINUTE - timedelta(microseconds=1), 4),
        ("b", "x", NOW + 3 * MINUTE, 5),  # later
    ):
        await submit(db, count, queue=queue, type=kind, due=due)
    await submit(db, queue="paused")
    await query(db, "update tasks set paused = true where queue = 'paused'")
    await claimed(db, queue="running")
    by_queue = await due_load(db, "queue", NOW, 3)
    assert by_queue == load.Load([Series("a", [5, 0, 0]), Series("b", [0, 1, 4])], 1.0)
    by_type = await due_load(db, "type", NOW, 3)
    assert by_type == load.Load([Series("x", [2, 0, 4]), Series("y", [3, 1, 0])], 1.0)


async def test_an_empty_store(db: Database) -> None:
    assert await due_load(db, "queue", NOW, 60) == load.Load([], 1.0)


async def test_names_beyond_the_first_are_summed(db: Database) -> None:
    for n in range(load.NAMES_MAX + 3):
        await submit(db, 2 if n < load.NAMES_MAX else 1, queue=f"q{n:02}", due=NOW + MINUTE)
    found = await due_load(db, "queue", NOW, 2)
    names = [f"q{n:02}" for n in range(load.NAMES_MAX)]
    assert found.series == [Series(name, [0, 2]) for name in names] + [Series(None, [0, 3])]
    found = await due_load(db, "type", NOW, 2)
    assert found.series == [Series("t", [0, 2 * load.NAMES_MAX + 3])]


@pytest.mark.parametrize("by", ["queue", "type"])
@pytest.mark.parametrize("counted", [3_000, 20])
async def test_a_large_store_is_sampled(
    db: Database, monkeypatch: pytest.MonkeyPatch, by: load.By, counted: int
) -> None:
    """By some slots, and where one slot has too many, by a part of it."""
    total = 20_000
    await query(
        db,
        "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
        " select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'k' || n % 4, 'k' || n % 4,"
        " '1', $1::timestamptz + n % 2 * interval '1 minute', $1, $1, $1"
        " from generate_series(1, $2::int) n",
        NOW, total,
    )  # fmt: skip
    limits: dict[Any, int] = {"queue": counted, "type": counted}
    monkeypatch.setattr(load, "_COUNTED_MAX", limits)
    found = await due_load(db, by, NOW, 2)
    assert found.sampled == pytest.approx(counted / total, rel=0.3)
    estimated = sum(sum(one.counts) for one in found.series)
    if counted == 3_000:
        assert estimated == pytest.approx(total, rel=0.2)
        for name, minute in (("k0", 0), ("k1", 1), ("k2", 0), ("k3", 1)):
            counts = next(one.counts for one in found.series if one.name == name)
            assert counts[1 - minute] == 0
            assert counts[minute] == pytest.approx(total / 4, rel=0.3)
    else:
        assert total / 4 < estimated < total * 4
