"""Waiting for what a peer recorded in PostgreSQL."""

from typing import Any

from benchmarks.processes import until


async def wait_recorded(database: Any, query: str, count: int, timeout_s: float) -> float:
    """Wait until `query` counts `count` outcomes; answers the time of the last, as it tells it.

    `query` answers a count and a time. Raises TimeoutError, which tells how many there are.
    """
    counted = 0

    async def recorded() -> float | None:
        nonlocal counted
        row = await database.fetchrow(query)
        counted = row[0]
        return float(row[1].timestamp()) if counted >= count else None

    try:
        return await until(recorded, timeout_s=timeout_s, every_s=0.25)
    except TimeoutError:
        raise TimeoutError(f"{counted} of {count} outcomes in {timeout_s:.0f} s") from None
