"""What the reaper and the recorder ask each second finds what runs without looking at what waits."""

from datetime import timedelta
from typing import Any

import pytest
from plans import carried_out, steps
from store_rig import NOW, query

from duly.storage.database import Database
from duly.storage.slots import SLOTS

WAITING = 20_000
RUNNING = 500


@pytest.fixture
async def filled(db: Database) -> Database:
    await query(
        db,
        "insert into tasks (id, type, queue, payload, next_run_at, status, created_at, updated_at,"
        " occurrence, owner, claimed_at)"
        " select gen_random_uuid(), 't', 'q' || n % 20, '{}', $1, "
        " case when n <= $2 then 'running' else 'pending' end, $1, $1, $1, 'me', $1"
        " from generate_series(1, $3::int) n",
        NOW, RUNNING, RUNNING + WAITING,
    )  # fmt: skip
    await query(db, "vacuum analyze tasks")
    return db


@pytest.mark.parametrize("name", ["running_since", "running_queues"])
async def test_it_uses_the_index_of_running_tasks(filled: Database, name: str) -> None:
    """Planned anew, and as a prepared statement that has been run often."""
    later = NOW + timedelta(seconds=60)
    every = list(range(SLOTS))
    args: list[Any] = [every, later, 5_000, None, None] if name == "running_since" else [every]
    for mode in ("force_custom_plan", "force_generic_plan"):
        plan = await carried_out(filled, name, mode, *args)
        reads = [step for step in steps(plan) if step.get("Relation Name") == "tasks"]
        assert reads, plan
        for step in steps(plan):
            assert step["Node Type"] != "Seq Scan", (mode, plan)
            assert step.get("Index Name", "tasks_running") == "tasks_running", (mode, plan)
            assert step.get("Rows Removed by Filter", 0) == 0, (mode, plan)
