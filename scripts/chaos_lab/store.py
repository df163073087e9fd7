"""Reads the final store by SQL of its own, and writes it into the evidence."""

import json
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis

from chaos_lab.evidence import STORE_FILE
from chaos_lab.journal import Journal

EFFECTS_TABLE = """
create table if not exists chaos_effects (
    task_id uuid not null, occurrence timestamptz not null, token bigint not null
)"""
"""What handlers write into through `ctx.exactly_once`: no constraint of its own hides a repeat."""

_FINALS = """
select id::text, status, version as token, result #>> '{}' as result from finished_tasks
union all select id::text, status, version, null from tasks"""
_RUNS = """
select task_id::text as id, token, outcome, extract(epoch from recorded_at)::float8 as recorded,
       result #>> '{}' as result
from runs order by recorded_at, token"""
_EFFECTS = "select task_id::text as id, occurrence::text as occurrence, token from chaos_effects"
_QUERIES = {"final": _FINALS, "run": _RUNS, "effect": _EFFECTS}
_LEFTOVERS = {"tasks": "XLEN", "reports": "XLEN", "inflight": "HLEN", "entries": "HLEN"}
_FETCH = 5_000
_TIMEOUT_S = 60.0


async def unfinished(database_url: str) -> int:
    """How many tasks have not ended yet."""
    connection = await asyncpg.connect(database_url, timeout=5, command_timeout=_TIMEOUT_S)
    try:
        return int(await connection.fetchval("select count(*) from tasks"))
    finally:
        await connection.close()


async def leftovers(redis_url: str, queues: tuple[str, ...]) -> dict[str, int]:
    """Size of each key that is empty when nothing is under way."""
    async with Redis.from_url(redis_url, protocol=2, socket_timeout=5) as client:
        redis: Any = client
        return {
            f"duly:{{{queue}}}:{name}": int(
                await redis.execute_command(size, f"duly:{{{queue}}}:{name}")
            )
            for queue in queues
            for name, size in _LEFTOVERS.items()
        }


async def save(database_url: str, redis_url: str, queues: tuple[str, ...], folder: Path) -> None:
    """Write all that the checker wants to know of the store into the folder of evidence."""
    journal = Journal(folder / STORE_FILE)
    for key, size in (await leftovers(redis_url, queues)).items():
        journal.add(e="leftover", key=key, size=size)
    connection = await asyncpg.connect(database_url, timeout=5, command_timeout=_TIMEOUT_S)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            with (folder / STORE_FILE).open("a") as file:
                for kind, query in _QUERIES.items():
                    cursor = connection.cursor(query, prefetch=_FETCH)
                    async for row in cursor:
                        file.write(json.dumps({"e": kind, **dict(row)}) + "\n")
    finally:
        await connection.close()
