"""Reads the final store by SQL of its own, and writes it into the evidence."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
       result #>> '{}' as result, extract(epoch from occurrence)::float8 as occurrence, verdict,
       finished_at is not null as ran
from runs order by recorded_at, token"""
_EFFECTS = "select task_id::text as id, occurrence::text as occurrence, token from chaos_effects"
_FENCES = """
select count(*) from finished_tasks f
join unnest($1::uuid[], $2::bigint[]) as i (id, token) on i.id = f.id and i.token = f.version
where f.status = 'cancelled'"""
_QUERIES = {"final": _FINALS, "run": _RUNS, "effect": _EFFECTS}
_LEFTOVERS = {"tasks": "XLEN", "reports": "XLEN", "inflight": "HLEN", "entries": "HLEN"}
_FETCH = 5_000
_TIMEOUT_S = 60.0


async def unfinished(database_url: str) -> int:
    """How many tasks have not ended yet."""
    async with _connected(database_url) as connection:
        return int(await connection.fetchval("select count(*) from tasks"))


async def leftovers(database_url: str, redis_url: str, queues: tuple[str, ...]) -> dict[str, int]:
    """Size of each key that is empty when nothing is under way."""
    async with Redis.from_url(redis_url, protocol=2, socket_timeout=5) as client:
        redis: Any = client
        sizes = {
            f"duly:{{{queue}}}:{name}": int(
                await redis.execute_command(size, f"duly:{{{queue}}}:{name}")
            )
            for queue in queues
            for name, size in _LEFTOVERS.items()
        }
        for queue in queues:
            key = f"duly:{{{queue}}}:inflight"
            sizes[key] = await _not_fences(database_url, await redis.hgetall(key))
    return sizes


async def _not_fences(database_url: str, inflight: dict[bytes, bytes]) -> int:
    """How many of these are not what a cancel puts there to keep late workers out."""
    if not inflight:
        return 0
    ids, tokens = [id_.decode() for id_ in inflight], [int(token) for token in inflight.values()]
    async with _connected(database_url) as connection:
        fences = await connection.fetchval(_FENCES, ids, tokens)
    return len(inflight) - int(fences)


@asynccontextmanager
async def _connected(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url, timeout=5, command_timeout=_TIMEOUT_S)
    try:
        yield connection
    finally:
        await connection.close()


async def save(database_url: str, redis_url: str, queues: tuple[str, ...], folder: Path) -> None:
    """Write all that the checker wants to know of the store into the folder of evidence."""
    journal = Journal(folder / STORE_FILE)
    for key, size in (await leftovers(database_url, redis_url, queues)).items():
        journal.add(e="leftover", key=key, size=size)
    with (folder / STORE_FILE).open("a") as file:
        async with (
            _connected(database_url) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            for kind, query in _QUERIES.items():
                async for row in connection.cursor(query, prefetch=_FETCH):
                    file.write(json.dumps({"e": kind, **dict(row)}) + "\n")
