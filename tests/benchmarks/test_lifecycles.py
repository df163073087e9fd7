"""Lifecycles through a store, without nodes: few of them, over as many days."""

import asyncpg
from benchmarks.lifecycles import measure

COUNT = 4_000  # four rounds, five days apart


async def test_lifecycles_end_and_their_days_are_dropped(fresh_database: str) -> None:
    samples = await measure(fresh_database, COUNT, samples=4)

    assert samples[-1]["done"] == COUNT
    assert all(sample["table tasks, bytes"] > 0 for sample in samples)
    assert samples[-1]["claim 200, ms"] > 0
    connection = await asyncpg.connect(fresh_database)
    try:
        assert await connection.fetchval("select count(*) from tasks") == 0
        assert 0 < await connection.fetchval("select count(*) from finished_tasks") < COUNT
    finally:
        await connection.close()
