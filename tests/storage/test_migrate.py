"""Migrations: once, whoever comes first, and never over a schema that is not ours."""

import asyncio
import itertools

import asyncpg
import pytest
from store_rig import NOW, opened, query, submit
from waiting import wait_for

from duly.storage import migrate as migrate_module
from duly.storage import tasks
from duly.storage.errors import MigrationError, StoreUnavailableError
from duly.storage.migrate import migrate, migrations
from duly.storage.slots import DueRow


async def test_nodes_that_start_at_once_apply_each_migration_once(blank_database: str) -> None:
    applied = await asyncio.gather(*(migrate(blank_database) for _ in range(4)))
    assert sorted(applied, key=len)[:3] == [[], [], []]
    assert max(applied, key=len) == [m.name for m in migrations()]
    async with opened(blank_database) as db:
        assert len(await query(db, "select * from slots")) == 256
        assert len(await query(db, "select * from duly_migrations")) == len(migrations())


def test_no_two_migrations_have_one_number() -> None:
    assert [m.version for m in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_second_start_changes_nothing(fresh_database: str) -> None:
    assert await migrate(fresh_database) == []


async def test_a_changed_migration_is_refused(fresh_database: str) -> None:
    async with opened(fresh_database) as db:
        await query(db, "update duly_migrations set checksum = 'other'")
    with pytest.raises(MigrationError, match=r"0001_tasks\.sql is not the one"):
        await migrate(fresh_database)


async def test_a_newer_schema_is_refused(fresh_database: str) -> None:
    async with opened(fresh_database) as db:
        await query(db, "insert into duly_migrations values (9999, '9999_later.sql', 'x')")
    with pytest.raises(MigrationError, match=r"9999_later\.sql.*upgrade duly"):
        await migrate(fresh_database)


async def test_a_migration_that_fails_leaves_nothing_behind(blank_database: str) -> None:
    async with opened(blank_database) as db:
        await query(db, "create table runs (mine text)")
    with pytest.raises(MigrationError, match=r"refuses the migration.*runs"):
        await migrate(blank_database)
    async with opened(blank_database) as db:
        rows = await query(db, "select tablename from pg_tables where schemaname = 'public'")
    assert [row["tablename"] for row in rows] == ["runs"]


async def test_a_server_that_is_not_there_is_unavailable(unused_port: int) -> None:
    with pytest.raises(StoreUnavailableError, match="no connection"):
        await migrate(f"postgresql://nobody@127.0.0.1:{unused_port}/none")


async def test_a_url_that_is_none_is_unavailable() -> None:
    with pytest.raises(StoreUnavailableError, match="no connection"):
        await migrate("postgresql://host:port/none")


async def test_a_connection_cut_in_the_middle_is_unavailable(blank_database: str) -> None:
    blocker = await asyncpg.connect(blank_database, timeout=10)
    try:
        await blocker.execute("select pg_advisory_lock($1)", 0x64756C79)
        waiting = asyncio.create_task(migrate(blank_database))

        async def cut() -> bool | None:
            ended: bool | None = await blocker.fetchval(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'duly migrate' and wait_event_type = 'Lock'"
                " and datname = current_database()"
            )
            return ended

        await wait_for(cut, 60, "the migration waits for the lock")
        with pytest.raises(StoreUnavailableError, match="interrupted"):
            await waiting
    finally:
        await blocker.close()


def test_migrations_are_numbered_without_a_gap_and_none_twice() -> None:
    assert [one.version for one in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_user_named_duly_finds_all_where_the_first_migration_was(
    blank_database: str,
) -> None:
    """Such a user has the schema `duly` before `public` in its search path."""
    await migrate(blank_database)
    async with opened(blank_database) as db:
        database = blank_database.rsplit("/", 1)[1]
        await query(db, f'alter database "{database}" set search_path = duly, public')
    assert await migrate(blank_database) == []
    async with opened(blank_database) as db:
        await query(db, "select duly_make_day('runs', 'recorded_at', '2040-01-01', 10)")
        tables = await query(db, "select tablename from pg_tables where schemaname = 'duly'")
        assert tables == []
        # A node of the version before looks into this one first.
        known = await query(db, "select name from duly_migrations")
        assert len(known) == len(migrations())


async def test_tasks_are_changed_while_a_working_store_is_migrated(
    blank_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change locks the row before it writes: a migration that raised its own lock later would never get it."""
    every = migrations()
    monkeypatch.setattr(migrate_module, "migrations", lambda: every[:30])
    await migrate(blank_database)
    monkeypatch.setattr(migrate_module, "migrations", lambda: every)
    async with opened(blank_database, statement_timeout_s=60) as db:
        rows = await submit(db, 3)
        await query(
            db,
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
            " select gen_random_uuid(), 't', 'q', '{}', $1, $1, $1, $1 from generate_series(1, 20000)",
            NOW,
        )
        migrated = asyncio.Event()

        async def change(row: DueRow) -> None:
            for priority in itertools.cycle(range(10)):
                await tasks.patch(db, row.id, tasks.Change(priority=priority), None, NOW)
                if migrated.is_set():
                    return

        async with asyncio.TaskGroup() as group:
            for row in rows:
                group.create_task(change(row))
            applied = await migrate(blank_database)
            migrated.set()
    assert applied == [m.name for m in every[30:]]
