"""The simulated store does what PostgreSQL does: the same random statements, the same rows."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
import simulated.course_statements
import simulated.follow_statements
import simulated.ledger_statements
import simulated.queue_statements
import simulated.statements
import simulated.task_statements  # noqa: F401 - registers statements
from simulated.statement_draws import Draws
from simulated.store import Store
from store_rig import NOW, opened, query

from duly.storage.database import Database

_IN_ORDER = {"running_since", "due"}
_UNCOMPARED = {
    "server_time", "try_write", "missing_days", "old_days", "end_sessions",
    "forget_alerts",
}  # fmt: skip
_TABLES = {
    "tasks": "id, type, queue, payload, next_run_at, status, slot, owner, version, retry_count, "
    "max_retries, created_at, updated_at, occurrence, paused, backoff, timeout, overrun, "
    "misfire_grace, on_lost, priority, idempotency_key, tags, claimed_at, started_at, start_id, "
    "worker, error, schedule, interval, runs_done, begun, done_until, following, skip_until, "
    "skip_reason, zone_data, paused_by, paused_at, concurrency_key, concurrency_limit, fairness_key, "
    "traceparent, name, on_success, on_failure, parent, after, waits_for, awaited",
    "finished_tasks": "id, type, queue, status, slot, owner, version, retry_count, created_at, "
    "updated_at, occurrence, on_lost, priority, started_at, finished_at, worker, result, error, "
    "schedule, interval, overrun, paused, concurrency_key, concurrency_limit, fairness_key, "
    "name, on_success, on_failure, parent, after",
    "runs": "task_id, token, occurrence, attempt, outcome, worker, started_at, finished_at, "
    "recorded_at, error, result, type, queue, verdict, follow_up",
    "task_waits": "parent, task",
    "rejected_reports": "task_id, token, outcome, worker, day, received_at, type, queue, occurrence, "
    "started_at, finished_at, error, times",
    "queues": "queue, paused, paused_by, paused_at, rate, burst, max_in_flight, updated_at, updated_by",
    "slots": "slot, owner, epoch, free_since",
}


def shown(rows: Iterable[Any]) -> list[str]:
    return [str([_shown(value) for value in row]) for row in rows]


def _shown(value: Any) -> str | None:
    if isinstance(value, list):  # whose order the statements leave open
        return str(sorted(str(one) for one in value))
    return None if value is None else str(value)


def held(store: Store, table: str) -> Iterable[dict[str, Any]]:
    tables: dict[str, Iterable[dict[str, Any]]] = {
        "tasks": store.tasks.values(), "finished_tasks": store.finished.values(),
        "runs": store.runs, "rejected_reports": store.rejected.values(), "slots": store.slots.values(), "queues": store.queues.values(),
        "task_waits": [{"parent": parent, "task": task} for parent, task in store.waits],
    }  # fmt: skip
    return tables[table]


async def compare_tables(db: Database, store: Store) -> None:
    for table, columns in _TABLES.items():
        real = shown(await query(db, f"select {columns} from {table}"))
        names = columns.split(", ")
        simulated = shown([row[name] for name in names] for row in held(store, table))
        assert sorted(simulated) == sorted(real), table


@pytest.mark.parametrize("seed", range(4))
async def test_random_statements_answer_alike(fresh_database: str, seed: int) -> None:
    store = Store(256, lambda: NOW)
    draws = Draws(random.Random(seed), store, NOW)
    async with opened(fresh_database) as db:
        for number in range(300):
            name, args = draws.draw()
            real = shown(await db.fetch(name, *args))
            simulated = shown(store.run(name, args))
            if name not in _IN_ORDER:
                real, simulated = sorted(real), sorted(simulated)
            assert simulated == real, (number, name, args)
            if number % 50 == 49:
                await compare_tables(db, store)


def test_every_simulated_statement_is_compared() -> None:
    drawn = {name for name in vars(Draws) if name.startswith("_")}
    assert {f"_{name}" for name in Store.known() - _UNCOMPARED} <= drawn
