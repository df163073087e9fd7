"""What PostgreSQL means to do to carry out a statement."""

import json
import re
from collections.abc import Iterator
from typing import Any

from duly.storage.database import Database


async def plan(connection: Any, text: str) -> dict[str, Any]:
    """The plan for unknown parameters."""
    await connection.execute("set plan_cache_mode = force_generic_plan")
    await connection.execute(f"prepare looked_at as {text}")
    count = max((int(n) for n in re.findall(r"\$(\d+)", text)), default=0)
    nothing = f"({', '.join(['null'] * count)})" if count else ""
    try:
        answer = await connection.fetchval(f"explain (format json) execute looked_at{nothing}")
    finally:
        await connection.execute("deallocate looked_at")
        await connection.execute("reset plan_cache_mode")
    found: dict[str, Any] = json.loads(answer)[0]["Plan"]
    return found


async def carried_out(db: Database, name: str, mode: str, *args: object) -> dict[str, Any]:
    """The plan by which PostgreSQL has carried out a statement, with what it took; `mode`: of `plan_cache_mode`."""

    async def work(connection: Any) -> Any:
        await connection.execute(f"set plan_cache_mode = {mode}")
        try:
            text = f"explain (analyze, buffers, format json) {Database.sql(name)}"
            return await connection.fetchval(text, *args)
        finally:
            await connection.execute("reset plan_cache_mode")

    found: dict[str, Any] = json.loads(await db.run(work))[0]["Plan"]
    return found


def steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for below in step.get("Plans", ()):
        yield from steps(below)


def ways(
    step: dict[str, Any], table: str, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """For each step that reads a table, the kinds of the steps above it, from the top."""
    if step.get("Relation Name") == table:
        yield above
    for below in step.get("Plans", ()):
        yield from ways(below, table, (*above, step["Node Type"]))
