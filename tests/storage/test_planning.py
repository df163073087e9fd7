"""The plan of a migration: each statement known, its locks as PostgreSQL shows them, no rewrite of `tasks`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from store_rig import NOW

from duly.storage.errors import MigrationError
from duly.storage.migrate import migrate, migrations, plan
from duly.storage.planning import Step, UnknownStatementError, statements, steps

# From weak to strong. Weaker ones keep nobody from reading or writing.
_STRENGTH = [
    "RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock",
    "ExclusiveLock", "AccessExclusiveLock",
]  # fmt: skip


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, timeout=60, command_timeout=60)
    try:
        yield connection
    finally:
        await connection.close()


async def test_each_statement_takes_the_lock_that_is_said_and_none_writes_tasks_anew(
    blank_database: str,
) -> None:
    ours = migrations()
    async with _connected(blank_database) as connection:
        # As `migrate` makes it: outside the schema `duly` a migration makes a view of it.
        await connection.execute(
            "create table duly_migrations (version integer, name text, checksum text)"
        )
        for migration, made in zip(ours, steps([one.sql for one in ours]), strict=True):
            file = await _file_of_tasks(connection)
            for step in made:
                await _check(connection, step, migration.name)
            if file is not None:
                assert await _file_of_tasks(connection) == file, f"{migration.name} rewrites tasks"
            if migration.version == 1:
                await _fill(connection)


async def _check(connection: Any, step: Step, name: str) -> None:
    """Run a step by itself, on tables that were there before, and compare."""
    async with connection.transaction():
        there = "select array_agg(relname) from pg_class where relkind in ('r', 'p')"
        before = set(await connection.fetchval(there))
        await connection.execute(step.sql)
        rows = await connection.fetch(
            "select c.relname, l.mode from pg_locks l join pg_class c on c.oid = l.relation"
            " where l.pid = pg_backend_pid() and c.relnamespace <> 'pg_catalog'::regnamespace"
            " and c.relkind in ('r', 'p') and l.mode = any($1)",
            _STRENGTH,
        )
    taken: dict[str, int] = {}
    for row in rows:
        if row["relname"] in before:
            strength = _STRENGTH.index(row["mode"])
            taken[row["relname"]] = max(taken.get(row["relname"], -1), strength)
    told = f"{name}: {step.sql[:100]}: {step.lock} on {step.table}, and it took {taken}"
    if step.lock is None:
        # To check the body of a function, PostgreSQL opens the tables in it as its statements will.
        assert all(_STRENGTH[one] == "RowExclusiveLock" for one in taken.values()), told
        return
    assert step.table is not None
    mode = step.lock.title().replace(" ", "") + "Lock"
    assert taken.pop(step.table) == _STRENGTH.index(mode), told
    # What is kept by day is changed in all of its parts.
    assert all(other.startswith(f"{step.table}_") for other in taken), told


async def _fill(connection: Any) -> None:
    await connection.execute(
        "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence,"
        " retry_count) select gen_random_uuid(), 't', 'q', '{}', $1, $1, $1, $1, n % 2"
        " from generate_series(1, 2000) n",
        NOW + timedelta(days=1),
    )


async def _file_of_tasks(connection: Any) -> int | None:
    file: int | None = await connection.fetchval(
        "select pg_relation_filenode(to_regclass('tasks'))"
    )
    return file


async def test_a_plan_is_what_a_migration_then_does_and_changes_nothing(
    blank_database: str,
) -> None:
    async with _connected(blank_database) as connection:
        planned = [migration.name for migration, _ in await plan(blank_database)]
        assert await _file_of_tasks(connection) is None
        assert await migrate(blank_database) == planned
        assert await plan(blank_database) == []
        # As if the version before had been here last.
        await connection.execute("delete from duly_migrations where version > 23")
    later = await plan(blank_database)
    assert [migration.version for migration, _ in later[:2]] == [24, 25]
    says = [step.says for step in later[0][1]]
    assert (
        says[0]
        == "ACCESS EXCLUSIVE on tasks: reads and writes of it wait; only the catalog changes"
    )
    assert says[2] == "SHARE on tasks: writes to it wait, reads go on; reads the whole table"


async def test_no_plan_for_a_schema_that_is_not_ours(fresh_database: str) -> None:
    async with _connected(fresh_database) as connection:
        await connection.execute("update duly_migrations set checksum = 'other' where version = 2")
    with pytest.raises(MigrationError, match=r"0002_schedules\.sql is not the one"):
        await plan(fresh_database)


@pytest.mark.parametrize(
    "sql",
    [
        "alter table tasks add column id2 uuid default gen_random_uuid()",
        "alter table tasks add column n bigint generated always as identity",
        "alter table tasks alter column priority type integer",
        "vacuum full tasks",
        "cluster tasks",
    ],
)
def test_what_would_rewrite_the_table_is_not_known(sql: str) -> None:
    with pytest.raises(UnknownStatementError):
        list(steps([sql]))


def test_an_index_that_is_dropped_locks_the_table_that_it_was_made_on() -> None:
    before = "-- one\ncreate table t (a text);\ncreate unique index i on t (a); -- 'not a text; nor $$ this"
    [[step]] = steps(["drop index i;"], [before])
    assert (step.lock, step.table) == ("ACCESS EXCLUSIVE", "t")
    [[_, index, dropped]] = steps([before + "\n;drop index i"])
    assert index.says == "SHARE on t: new, nobody waits for it; reads the whole table"
    assert dropped.table == "t"


def test_statements_end_at_semicolons_that_are_not_in_texts_bodies_or_comments() -> None:
    sql = """-- a; comment
        insert into t values ('it''s; -- one', "a;b" - 1);
        do $x$ begin perform $$;$$; end $x$; -- the end;
        select 1"""
    assert statements(sql) == [
        """insert into t values ('it''s; -- one', "a;b" - 1)""",
        "do $x$ begin perform $$;$$; end $x$",
        "select 1",
    ]
