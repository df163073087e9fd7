"""Days of finished tasks and runs to be exported, and what is in the files."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
from store_rig import query

from duly.storage import upkeep
from duly.storage.database import Database

_RUNS = """
insert into runs (task_id, token, occurrence, attempt, outcome, worker, started_at, finished_at, recorded_at,
                  result, type, queue, verdict)
select gen_random_uuid(), n, t, 1, 'completed', 'w1', t, t, t, $3::jsonb, 't', 'q', 'completed'
from generate_series(1, $2) n, lateral (select $1::timestamptz + n * interval '1 microsecond') c (t)
"""
_TASKS = """
insert into finished_tasks (id, type, queue, payload, status, slot, version, retry_count, max_retries, interval,
                            created_at, updated_at, occurrence, paused, timeout, overrun, on_lost, priority, tags,
                            finished_at, result)
select gen_random_uuid(), 't', 'q', $3::jsonb, 'completed', 1, n, 0, 3, interval '90 seconds', t, t, t, false, 0.1,
       'skip', 'retry', 5, '{"a": "b"}', t, '1e400'
from generate_series(1, $2) n, lateral (select $1::timestamptz + n * interval '1 microsecond') c (t)
"""
_FILL = {"runs": _RUNS, "tasks": _TASKS}


async def add(db: Database, kind: str, day: date, count: int, payload: str = '{"n": 1.10}') -> None:
    """Add so many rows of a day; `payload` is JSON text."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    await query(db, _FILL[kind], noon, count, payload)


async def days_ago(db: Database, days: int) -> date:
    """A day before today, by the store's clock (UTC)."""
    return (await upkeep.server_time(db)).date() - timedelta(days=days)


async def with_days(db: Database, days: int) -> list[date]:
    """Make the partitions of so many days before today; the oldest first."""
    made = [await days_ago(db, ago) for ago in range(days, 0, -1)]
    for day in made:
        await upkeep.make_partitions(db, day)
    return made


def read(path: Path) -> list[dict[str, Any]]:
    """The rows in a file."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def exported(folder: Path) -> dict[str, int]:
    """How many rows each file of the manifest holds."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return {name: entry["rows"] for name, entry in files.items()}


def names(folder: Path) -> list[str]:
    """The files in a folder, but for the lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


@asynccontextmanager
async def reading(url: str, table: str) -> AsyncIterator[None]:
    """Somebody reads a table, in a transaction that takes its time."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.fetch(f"select from {table}")
            yield
    finally:
        await connection.close()
