"""No statement reads a large table from end to end: each is explained on a filled store.

The plans are those for unknown parameters, which PostgreSQL makes for statements that run often: so they
hold for all values, and a new statement is looked at without being known here.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from plans import plan, steps
from store_rig import NOW, opened, query, submit

from duly.storage import slots
from duly.storage.database import Database
from duly.storage.queries import statements

WAITING, RUNNING, PAUSED, PERIODIC, FINISHED_A_DAY = 200_000, 500, 500, 2_000, 60_000
SMALL = 5_000
"""So many rows of an index may be read whatever it is for: those that run, are paused, are periodic, failed."""
BY_INDEX = ("Index Scan", "Index Only Scan", "Bitmap Index Scan")
WANTS_ALL = ("Sort", "Aggregate", "Hash", "WindowAgg", "Materialize", "SetOp", "CTE Scan")
LARGE = re.compile(r"tasks|(finished_tasks|runs|rejected_reports)_(\d+|rest)")

_FILL = (
    """insert into tasks (id, type, queue, payload, next_run_at, status, created_at, updated_at,
                          occurrence, owner, claimed_at, paused, schedule, tags)
       select gen_random_uuid(), 't' || n % 20, 'q' || n % 10, '{}',
              $1::timestamptz + n * interval '400 ms',
              case when n <= $3::int then 'running' else 'pending' end, $1, $1, $1, 'me', $1,
              n between 1000 and 999 + $4::int,
              case when n between 5000 and 4999 + $5::int then '{"every": 5}'::jsonb end,
              case when n % 50 = 0 then jsonb_build_object('n', n::text) else '{}' end
       from generate_series(1, $2::int) n""",
    """insert into finished_tasks (id, type, queue, payload, status, slot, version, retry_count,
           max_retries, created_at, updated_at, occurrence, paused, schedule, timeout, overrun, on_lost,
           priority, tags, finished_at)
       select gen_random_uuid(), 't' || n % 20, 'q' || n % 10, '{}',
              case when n % 1000 = 0 then 'failed' else 'completed' end, 0, 1, 0, 3, $1::timestamptz,
              $1, $1, false, case when n % 1000 = 1 then '{"every": 5}'::jsonb end, 300, 'skip', 'retry',
              5, case when n % 50 = 0 then jsonb_build_object('n', n::text) else '{}' end, $1
       from generate_series(1, $2::int) n""",
    """insert into runs (task_id, token, occurrence, attempt, outcome, recorded_at, type, queue, verdict)
       select gen_random_uuid(), 1, $1::timestamptz, 1, 'completed', $1 + n * interval '1 ms', 't', 'q',
              (array['completed', null, 'failed', 'cancelled', 'skipped'])
                  [case when n % 10 < 8 then 1 else 1 + n % 5 end]
       from generate_series(1, $2::int) n""",
    """insert into rejected_reports (task_id, token, outcome, worker, day, received_at, type, queue,
                                     occurrence, times)
       select gen_random_uuid(), 1, 'completed', 'w', date_trunc('day', $1::timestamptz),
              $1 + n * interval '1 ms', 't', 'q', $1, 1 from generate_series(1, $2::int) n""",
)


async def fill(db: Database) -> None:
    tasks, finished, *by_day = _FILL
    days = (NOW - timedelta(days=2), NOW - timedelta(days=1), NOW)
    for table, clock in (
        ("finished_tasks", "finished_at"), ("runs", "recorded_at"), ("rejected_reports", "day"),
    ):  # fmt: skip
        made = "select duly_make_partitions($1, $2, $3, $4)::text"
        await query(
            db, made, table, clock, days[1].date(), NOW.date()
        )  # the first goes to the rest
    await query(db, tasks, NOW, WAITING, RUNNING, PAUSED, PERIODIC)
    for day in days:
        await query(db, finished, day, FINISHED_A_DAY)
        for table in by_day:
            await query(db, table, day, FINISHED_A_DAY)
    for name in ("effects_create_table", "effects_create_index"):
        await db.fetch(name)
    await query(db, "vacuum analyze")


async def large_indexes(connection: Any) -> dict[str, str]:
    """The indexes of a large table that hold more than a small share of it, and their tables."""
    rows = await connection.fetch(
        """select i.relname as name, t.relname as of from pg_index x
           join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
           where i.relkind = 'i' and i.reltuples > $1::int""",
        SMALL,
    )
    return {row["name"]: row["of"] for row in rows if LARGE.fullmatch(row["of"])}


def end_to_end(
    step: dict[str, Any], indexes: dict[str, str], *, stops: bool = False
) -> Iterator[str]:
    """The large tables that a plan reads from end to end: by itself, or by an index without a condition.

    `stops`: a limit above ends the reading, since nothing in between wants all rows first.
    """
    kind = step["Node Type"]
    if step.get("Parent Relationship") in ("InitPlan", "SubPlan", "Inner") or kind in WANTS_ALL:
        stops = False
    index = step.get("Index Name", "") if kind in BY_INDEX and "Index Cond" not in step else ""
    name = step.get("Relation Name") or indexes.get(index, "")
    if kind == "Seq Scan" and LARGE.fullmatch(name):  # a Parallel Seq Scan is one, too
        yield name
    elif index in indexes and not stops:
        yield f"{name} by {index}"
    for below in step.get("Plans", ()):
        yield from end_to_end(below, indexes, stops=stops or kind == "Limit")


WHOLE = {"move_apart"}
"""Read once before slots move, by a connection without a time limit, while nothing waits for it."""

# Each hides a reading from end to end in another way.
HIDDEN = {
    "select * from tasks where worker = $1": "tasks",
    "select count(*) from tasks where worker = $1": "tasks",
    "select count(id) from tasks": "tasks",
    "select id from tasks order by id": "tasks",
    "select id from tasks order by priority + 1 limit 5": "tasks",
}


async def test_no_statement_reads_a_large_table_from_end_to_end(fresh_database: str) -> None:
    async with opened(fresh_database, statement_timeout_s=120.0) as db:
        await fill(db)

        async def look(connection: Any) -> None:
            indexes = await large_indexes(connection)
            assert {"tasks_pkey", "tasks"} <= {*indexes, *indexes.values()}
            for costs in ("1000", "0"):  # with those of 0 PostgreSQL uses several processes
                await connection.execute(f"set parallel_setup_cost = {costs}")
                await connection.execute(f"set parallel_tuple_cost = {int(costs) / 10_000}")
                for text, what in HIDDEN.items():
                    found = list(end_to_end(await plan(connection, text), indexes))
                    assert len(found) == 1, f"not seen: {text}"
                    assert found[0].startswith(what), text
            await connection.execute("reset parallel_setup_cost")
            await connection.execute("reset parallel_tuple_cost")
            bad = {}
            for name, text in statements().items():
                if name not in WHOLE and not text.startswith(
                    ("create ", "begin ", "commit", "truncate ")
                ):
                    bad[name] = list(end_to_end(await plan(connection, text), indexes))
            assert {name: tables for name, tables in bad.items() if tables} == {}

        await db.run(look)


async def test_what_is_due_of_a_key_is_found_without_reading_what_is_to_come(
    fresh_database: str,
) -> None:
    async with opened(fresh_database) as db:
        later = [(priority, NOW + timedelta(hours=1)) for priority in (0, 5, 9)]
        asked = [(2, NOW), (9, NOW), (9, NOW - timedelta(seconds=1)), (0, NOW), *later]
        rows = []
        for priority, due in asked:
            rows += await submit(db, priority=priority, due=due, concurrency_key="k")
        await submit(db, 2, concurrency_key="other")
        await submit(db, 2, concurrency_key="k", queue="other")
        best = [rows[at].id for at in (2, 1, 0, 3)]
        for limit in (1, 3, 9):
            found = await slots.due_of_key(db, range(slots.SLOTS), "default", "k", NOW, limit)
            assert [row.id for row in found] == best[:limit]

        async def look(connection: Any) -> None:
            await connection.execute("set enable_seqscan = off")  # the table is small
            await connection.execute("set enable_bitmapscan = off")
            found = steps(await plan(connection, Database.sql("due_of_key")))
            (read,) = [step for step in found if step.get("Relation Name") == "tasks"]
            assert read["Index Name"] == "tasks_awaiting_key"
            assert "priority = p.priority" in read["Index Cond"], "else PostgreSQL 17 reads it all"

        await db.run(look)
