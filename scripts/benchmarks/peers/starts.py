"""Waiting for what handlers noted."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.peers.notes import count_ready, count_starts, read_starts
from benchmarks.processes import until
from benchmarks.rig import Start

WARM_UPS = 20
"""Tasks that run before anything is measured, to see that the workers work."""


async def wait_ready(folder: Path, workers: int, timeout_s: float = 120) -> None:
    """Wait until so many workers have said that they are ready. Raises TimeoutError."""

    async def ready() -> bool:
        return count_ready(folder) >= workers

    await _until(ready, timeout_s, f"{workers} workers are ready")


async def wait_warm(folder: Path, timeout_s: float = 120) -> None:
    """Wait until the warm-ups have run. Raises TimeoutError."""

    async def warm() -> bool:
        return count_starts(folder) >= WARM_UPS

    await _until(warm, timeout_s, "the first tasks have run")


async def wait_started(folder: Path, dues: Sequence[float], timeout_s: float) -> list[Start]:
    """Wait until the tasks with the numbers of these due times have started.

    Raises TimeoutError, which tells how many did.
    """

    async def started() -> bool:
        if count_starts(folder) < len(dues):
            return False
        return len(read_starts(folder)[0]) >= len(dues)

    try:
        await until(started, timeout_s=timeout_s, every_s=0.25)
    except TimeoutError:
        ran = len(read_starts(folder)[0])
        raise TimeoutError(f"{ran} of {len(dues)} tasks started in {timeout_s:.0f} s") from None
    first, _ = read_starts(folder)
    return [Start(due, first[number]) for number, due in enumerate(dues)]


async def _until(condition: Callable[[], Awaitable[bool]], timeout_s: float, what: str) -> None:
    try:
        await until(condition, timeout_s=timeout_s)
    except TimeoutError:
        raise TimeoutError(f"not within {timeout_s:.0f} s: {what}") from None
