"""Counts of tasks: exact, estimated, and always from an index."""

import itertools
import math
from collections.abc import Callable
from typing import Any, cast

import pytest
from store_rig import NOW, query

from duly.storage import counting
from duly.storage.counting import Depth
from duly.storage.database import Database
from duly.storage.queries import statements

_TASKS = 20_000
_FILL = f"""
insert into tasks (id, type, queue, payload, next_run_at, occurrence, created_at, updated_at, status,
                   owner, claimed_at, paused)
select gen_random_uuid(), 't', case when n % 4 = 0 then 'a' else 'b' end, '{{}}', '{NOW.isoformat()}'::timestamptz
       + (n % 10 - 5) * interval '1 minute', now(), now(), now(),
       case when n % 100 = 0 then 'running' else 'pending' end, case when n % 100 = 0 then 'x' end,
       case when n % 100 = 0 then now() end, n % 50 = 1
from generate_series(1, {_TASKS}) n
"""


def still() -> float:
    """A clock that never moves."""
    return 0.0


async def test_an_empty_store(db: Database) -> None:
    assert await counting.counts(db, NOW, 1.0, still) == ({}, {}, True)
    assert await counting.due(db, range(256), NOW, 1.0, still) == 0
    assert await counting.due(db, (), NOW, 1.0, still) == 0


async def test_all_are_counted_while_there_is_time(db: Database) -> None:
    await query(db, _FILL)
    await query(
        db,
        "insert into finished_tasks select id, type, queue, payload, 'failed', slot, owner, version, "
        "retry_count, max_retries, interval, created_at, updated_at, occurrence, paused, backoff, "
        "timeout, schedule, overrun, misfire_grace, on_lost, priority, idempotency_key, tags, now(), "
        "now(), 'w' from tasks limit 7",
    )
    found = await counting.counts(db, NOW, 1.0, still)
    expected = {
        queue: Depth(*numbers)
        for queue, *numbers in await query(
            db,
            "select queue, count(*) filter (where status = 'pending'), "
            "count(*) filter (where status = 'pending' and not paused and next_run_at <= "
            f"'{NOW.isoformat()}'), count(*) filter (where paused and status = 'pending'), "
            "count(*) filter (where status = 'running') from tasks group by queue",
        )
    }
    assert found.queues == expected
    assert found.finished == {"failed": 7}
    assert found.exact
    assert await counting.due(db, range(256), NOW, 1.0, still) == sum(
        depth.due for depth in expected.values()
    )


def _hurried() -> Callable[[], float]:
    """A clock on which each look is a second later."""
    ticks = itertools.count()
    return lambda: float(next(ticks))


async def test_a_small_store_is_counted_whole_however_long_it_takes(db: Database) -> None:
    await query(db, f"{_FILL} limit 45")
    found = await counting.counts(db, NOW, 0.05, _hurried())
    assert found.exact
    assert sum(depth.pending + depth.running for depth in found.queues.values()) == 45
    assert await counting.due(db, range(256), NOW, 0.05, _hurried()) == sum(
        depth.due for depth in found.queues.values()
    )


async def test_so_many_tasks_are_counted_at_least(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await query(db, _FILL)
    monkeypatch.setattr(counting, "LEAST", 5_000)
    asked: list[int] = []

    class Watched:
        async def fetch(self, name: str, *args: Any) -> Any:
            rows = await db.fetch(name, *args)
            if name == "count_tasks":
                asked.append(sum(row["pending"] + row["running"] for row in rows))
            return rows

    found = await counting.counts(cast(Database, Watched()), NOW, 0.05, _hurried())
    assert not found.exact
    # The first slots tell how many are needed; not one statement for each slot.
    assert 5_000 <= sum(asked) < 10_000
    assert len(asked) < 10


async def test_without_time_some_slots_stand_for_all(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await query(db, _FILL)
    monkeypatch.setattr(counting, "LEAST", 0)
    hurried = _hurried()
    found = await counting.counts(db, NOW, 1.5, hurried)
    assert not found.exact
    # 4 slots in the first second, then as many as fit into half a second: 2. So 6 of 256 are counted.
    total = sum(depth.pending + depth.running for depth in found.queues.values())
    assert abs(total - _TASKS) < 6 * math.sqrt(_TASKS * 256 / 6)
    assert abs(found.queues["b"].pending - _TASKS * 3 / 4) < 6 * math.sqrt(_TASKS * 256 / 6)
    few = await counting.due(db, range(256), NOW, 0.5, hurried)
    assert 0 < few < 3 * _TASKS


async def test_many_finished_tasks_are_estimated(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await query(
        db,
        "insert into finished_tasks (id, type, queue, payload, status, slot, version, retry_count, "
        "max_retries, created_at, updated_at, occurrence, paused, timeout, overrun, on_lost, priority, "
        "tags, finished_at) select gen_random_uuid(), 't', 'q', '{}', 'completed', 0, 1, 0, 3, now(), "
        "now(), now(), false, 300, 'skip', 'retry', 5, '{}', now() from generate_series(1, 20000)",
    )
    monkeypatch.setattr(counting, "FINISHED_BYTES", 1_000_000)
    found = await counting.counts(db, NOW, 1.0, still)
    assert not found.exact
    assert 5_000 < found.finished["completed"] < 80_000


async def test_counts_come_from_indexes(db: Database) -> None:
    await query(db, _FILL)
    await query(db, "analyze tasks")
    for name in ("count_due", "count_tasks"):
        for mode in ("force_custom_plan", "force_generic_plan"):

            async def explain(connection: object, name: str = name, mode: str = mode) -> str:
                await connection.execute(f"set plan_cache_mode = {mode}")  # type: ignore[attr-defined]
                text = f"explain {statements()[name]}"
                rows = await connection.fetch(text, [1, 2, 3], NOW)  # type: ignore[attr-defined]
                return "\n".join(row[0] for row in rows)

            plan = await db.run(explain)
            assert "Seq Scan" not in plan, plan
            assert "tasks_due" in plan, plan
            if name == "count_tasks":
                assert "tasks_paused_slot" in plan, plan
                assert "tasks_running" in plan, plan
