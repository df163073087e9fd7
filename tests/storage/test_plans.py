"""No statement reads a large table from end to end: each is explained on a filled store.

The plans are those for unknown parameters, which PostgreSQL makes for statements that run often: so they
hold for all values, and a new statement is looked at without being known here.
"""

import re
from datetime import timedelta
from typing import Any

from plans import plan, steps
from store_rig import NOW, opened, query, submit

from duly.storage import slots
from duly.storage.database import Database
from duly.storage.queries import statements

WAITING, RUNNING, PAUSED, PERIODIC, FINISHED_A_DAY = 200_000, 500, 500, 2_000, 60_000
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


def end_to_end(found: dict[str, Any]) -> list[str]:
    """The large tables that a plan reads from end to end."""
    return [
        step["Relation Name"]
        for step in steps(found)
        if step["Node Type"] == "Seq Scan" and LARGE.fullmatch(step["Relation Name"])
    ]


async def test_no_statement_reads_a_large_table_from_end_to_end(fresh_database: str) -> None:
    async with opened(fresh_database, statement_timeout_s=120.0) as db:
        await fill(db)

        async def look(connection: Any) -> None:
            nothing = await plan(connection, "select * from tasks where worker = $1")
            assert end_to_end(nothing) == ["tasks"], "the test sees no sequential scan"
            bad = {}
            for name, text in statements().items():
                if not text.startswith("create "):
                    bad[name] = end_to_end(await plan(connection, text))
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
