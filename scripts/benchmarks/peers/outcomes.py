"""Waiting for what a peer recorded in PostgreSQL."""

from typing import Any

from benchmarks.peers.starts import WARM_UPS
from benchmarks.processes import until


async def wait_recorded(database: Any, query: str, count: int, timeout_s: float) -> list[float]:
    """Wait until `query` finds `count` outcomes after the warm-ups'; answers their times in order, in seconds since 1970.

    `query` answers the time of each as `at`. Raises TimeoutError, which tells how many there are.
    """
    counted = 0

    async def recorded() -> bool:
        nonlocal counted
        counted = int(await database.fetchval(f"select count(*) from ({query}) as outcome"))
        return counted >= WARM_UPS + count

    try:
        await until(recorded, timeout_s=timeout_s, every_s=0.25)
    except TimeoutError:
        told = f"{counted - WARM_UPS} of {count} outcomes in {timeout_s:.0f} s"
        raise TimeoutError(told) from None
    return sorted(row["at"].timestamp() for row in await database.fetch(query))[WARM_UPS:]
