"""Day partitions: made ahead, filled from the default one, dropped by retention."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from archive_rig import reading
from plans import plan, steps
from store_rig import NOW, claimed, ended, query, submit

from duly.storage import claims, upkeep
from duly.storage.database import Database
from duly.storage.queries import statements

TODAY = NOW.date()


async def partitions(db: Database, parent: str) -> list[str]:
    rows = await query(
        db,
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = $1::text::regclass order by 1",
        parent,
    )
    return [row["relname"] for row in rows]


async def finish(db: Database, count: int, now: datetime) -> None:
    reports = [ended(task) for task in await claimed(db, count)]
    assert len(await claims.complete(db, reports, now)) == count


async def test_partitions_reach_from_yesterday_to_a_week_ahead(db: Database) -> None:
    await upkeep.make_partitions(db, TODAY)
    await upkeep.make_partitions(db, TODAY)
    names = await partitions(db, "runs")
    assert names[0] == "runs_20261128"
    assert names[-2:] == ["runs_20261206", "runs_rest"]
    assert len(names) == 10


async def test_rows_of_the_default_partition_move_into_their_day(db: Database) -> None:
    await finish(db, 3, NOW)
    assert await query(db, "select from only runs_rest") != []
    await upkeep.make_partitions(db, TODAY)
    for table in ("runs", "finished_tasks"):
        assert len(await query(db, f"select from {table}_20261129")) == 3
        assert await query(db, f"select from {table}_rest") == []
        assert len(await query(db, f"select from {table}")) == 3


async def test_partitions_are_made_while_tasks_end(db: Database) -> None:
    async def end_some() -> None:
        for _ in range(15):
            await finish(db, 5, NOW)

    async def make_days() -> None:
        for day in range(8):
            await upkeep.make_partitions(db, date(2026, 11, 14) + timedelta(days=2 * day))

    await asyncio.gather(end_some(), make_days(), make_days())
    assert len(await query(db, "select from runs")) == 75


async def test_after_weeks_the_days_from_yesterday_on_are_made(db: Database) -> None:
    await upkeep.make_partitions(db, TODAY)
    await upkeep.make_partitions(db, TODAY + timedelta(days=40))
    names = await partitions(db, "audit")
    assert "audit_20270107" in names
    assert "audit_20270106" not in names
    assert "audit_20270115" in names


async def test_days_are_there_long_before_midnight(db: Database) -> None:
    await upkeep.make_partitions(db, TODAY)
    await finish(db, 1, datetime(2026, 11, 30, tzinfo=UTC) - timedelta(microseconds=1))
    await finish(db, 1, datetime(2026, 11, 30, tzinfo=UTC))
    assert len(await query(db, "select from runs_20261129")) == 1
    assert len(await query(db, "select from runs_20261130")) == 1


async def test_a_day_is_not_made_while_somebody_reads_the_table_and_nobody_waits(
    db: Database, fresh_database: str
) -> None:
    async with reading(fresh_database, "runs"):
        assert not await upkeep.make_partitions(db, TODAY)
        await finish(db, 3, NOW)
        assert await partitions(db, "runs") == ["runs_rest"]
        assert len(await partitions(db, "audit")) == 10
    assert await upkeep.make_partitions(db, TODAY)
    assert len(await query(db, "select from runs_20261129")) == 3


async def test_a_day_with_too_many_rows_to_move_stays_in_the_default_partition(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_MOVED_AT_MOST", 2)
    await finish(db, 3, NOW)
    assert not await upkeep.make_partitions(db, TODAY)
    assert "runs_20261129" not in await partitions(db, "runs")
    assert "runs_20261130" in await partitions(db, "runs")
    await finish(db, 1, NOW)
    assert len(await query(db, "select from runs")) == 4
    found = await upkeep.drop_old_days(db, NOW + timedelta(days=1))
    assert await query(db, "select from runs") == []
    assert not found.locked


async def test_with_a_short_retention_a_dropped_day_is_not_made_again(db: Database) -> None:
    await upkeep.make_partitions(db, TODAY)
    cutoff = NOW - timedelta(minutes=1)
    assert (await upkeep.drop_old_days(db, cutoff)).dropped == len(upkeep.BY_DAY)
    assert await upkeep.make_partitions(db, TODAY, oldest=cutoff.date())
    assert (await upkeep.drop_old_days(db, cutoff)).dropped == 0
    assert "runs_20261129" in await partitions(db, "runs")


async def test_nodes_make_the_same_partitions_at_once(db: Database) -> None:
    await asyncio.gather(*(upkeep.make_partitions(db, TODAY) for _ in range(4)))
    assert len(await partitions(db, "finished_tasks")) == 10


async def test_retention_drops_whole_days_that_are_over(db: Database) -> None:
    await upkeep.make_partitions(db, TODAY)
    await finish(db, 1, NOW - timedelta(days=1))
    await finish(db, 1, NOW)
    long_ago = NOW - timedelta(days=90)  # such as what a node on a restored backup had to put aside
    await finish(db, 1, long_ago)
    last_moment = datetime(2026, 11, 29, tzinfo=UTC) - timedelta(microseconds=1)
    assert (await upkeep.drop_old_days(db, last_moment)).dropped == 2  # of tasks and runs, long ago
    assert len(await query(db, "select from runs")) == 2  # but the one of long ago is gone
    tables = len(("finished_tasks", "runs", "audit", "rejected_reports"))
    assert (
        await upkeep.drop_old_days(db, last_moment + timedelta(microseconds=1))
    ).dropped == tables
    assert "runs_20261128" not in await partitions(db, "runs")
    kept = await query(db, "select recorded_at from runs")
    assert [row["recorded_at"] for row in kept] == [NOW]


@pytest.mark.parametrize("table", ["runs_20261128", "runs"])
async def test_what_somebody_reads_is_not_dropped_and_nobody_waits(
    db: Database, fresh_database: str, table: str
) -> None:
    await upkeep.make_partitions(db, TODAY)
    await finish(db, 1, NOW - timedelta(days=1))
    async with reading(fresh_database, table):
        found = await upkeep.drop_old_days(db, NOW)
        assert (found.dropped, found.locked) == (3, 1)
        for _ in range(3):
            await finish(db, 1, NOW)
    assert len(await query(db, "select from runs_20261128")) == 1
    assert await upkeep.drop_old_days(db, NOW) == (1, 0, [])
    assert len(await query(db, "select from runs")) == 3


async def test_nodes_drop_the_same_days_at_once_while_tasks_end(db: Database) -> None:
    days = [TODAY - timedelta(days=2 * n) for n in range(1, 5)]
    for day in days:
        await upkeep.make_partitions(db, day)

    async def end_some() -> None:
        for _ in range(20):
            await finish(db, 5, NOW)

    async def drop() -> None:
        for _ in range(100):
            if not (await upkeep.drop_old_days(db, NOW)).locked:
                return
        raise AssertionError("there was always a lock")

    await asyncio.gather(end_some(), drop(), drop(), drop())
    assert len(await query(db, "select from runs")) == 100
    assert "runs_20261128" not in await partitions(db, "runs")


async def test_only_what_was_exported_is_dropped_if_that_is_asked_for(db: Database) -> None:
    await upkeep.make_partitions(db, TODAY)
    await finish(db, 1, NOW - timedelta(days=30))  # without a partition
    found = await upkeep.drop_old_days(db, NOW, exported=True)
    assert [(old.parent, str(old.day)) for old in found.unexported] == [
        ("finished_tasks", "2026-10-30"), ("runs", "2026-10-30"),
        ("finished_tasks", "2026-11-28"), ("runs", "2026-11-28"),
    ]  # fmt: skip
    assert found.dropped == 2  # audit and rejected reports are not exported
    await query(
        db,
        "insert into archived_days (parent, day, exported_at)"
        " values ('runs', '2026-10-30', $1), ('finished_tasks', '2026-11-28', $1)",
        NOW,
    )
    found = await upkeep.drop_old_days(db, NOW, exported=True)
    assert found.dropped == 2
    assert [(old.parent, str(old.day)) for old in found.unexported] == [
        ("finished_tasks", "2026-10-30"), ("runs", "2026-11-28"),
    ]  # fmt: skip
    assert await query(db, "select from runs") == []
    assert await query(db, "select from archived_days") == []


async def test_keys_are_forgotten_when_their_time_is_over(db: Database) -> None:
    await submit(db, key="old", fingerprint=b"")
    await upkeep.expire_keys(db, NOW - timedelta(seconds=1))
    assert len(await query(db, "select from idempotency_keys")) == 1
    await upkeep.expire_keys(db, NOW)
    assert await query(db, "select from idempotency_keys") == []


async def test_expired_keys_are_found_by_their_places(db: Database) -> None:
    """The plan does not depend on what PostgreSQL believes of how many there are."""
    await query(
        db,
        "insert into idempotency_keys select n::text, gen_random_uuid(), '', $1::timestamptz + n * interval '1 s'"
        " from generate_series(1, 12000) n",
        NOW,
    )

    async def look(connection: Any) -> None:
        found.append(await plan(connection, statements()["expire_keys"]))

    found: list[dict[str, Any]] = []
    await db.run(look)
    await query(db, "analyze idempotency_keys")
    await db.run(look)
    for one in found:
        kinds = [step["Node Type"] for step in steps(one)]
        assert "Tid Scan" in kinds
        assert "Seq Scan" not in kinds
    left = []
    while await upkeep.expire_keys(db, NOW + timedelta(seconds=9000)):
        left.append(len(await query(db, "select from idempotency_keys")))
    assert left == [7000, 3000]
