"""Duly behind the interface of the peers: one node, submissions over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks import load
from benchmarks.peers.notes import TEXT, WARM_UP
from benchmarks.peers.outcomes import wait_recorded
from benchmarks.peers.peer import Servers, Submitted, Traits
from benchmarks.peers.starts import WARM_UPS, wait_started, wait_warm
from benchmarks.rig import QUEUE, TASK_TYPE, Rig, Start, running_on, temporary_folder

_CONNECTIONS = 16
_RECORDED = "select count(*), max(recorded_at) from runs where outcome = 'completed'"


class RunningDuly:
    """A node whose workers note what they start."""

    def __init__(self, rig: Rig, notes: Path) -> None:
        self._rig = rig
        self._notes = notes

    async def set_workers(self, count: int) -> None:
        """Have `count` workers; all have worked."""
        await self._rig.set_workers(count)
        if count:
            await self._submit([time.time()] * WARM_UPS, [WARM_UP] * WARM_UPS)
            await wait_warm(self._notes)

    async def submit(self, dues: Sequence[float], single: bool = False) -> Submitted:
        """In batches of 1,000, two requests at a time, or the same task again and again."""
        began = time.perf_counter()
        if single:
            await load.post(f"{self._rig.api}/v1/tasks", _task(dues[0], 0), len(dues), _CONNECTIONS)
        else:
            await self._submit(dues, range(len(dues)))
        return Submitted(time.perf_counter() - began, dues)

    async def _submit(self, dues: Sequence[float], numbers: Sequence[int]) -> None:
        tasks = [_task(due, number) for due, number in zip(dues, numbers, strict=True)]
        half = len(tasks) // 2
        await asyncio.gather(self._rig.submit(tasks[:half]), self._rig.submit(tasks[half:]))

    async def starts(self, submitted: Submitted, timeout_s: float) -> list[Start]:
        """The first start of each task, as its handler noted it."""
        return await wait_started(self._notes, submitted.dues, timeout_s)

    async def recorded(self, count: int, timeout_s: float) -> float | None:
        """When the last of so many runs was recorded."""
        return await wait_recorded(self._rig.database, _RECORDED, count + WARM_UPS, timeout_s)


class DulyPeer:
    """This project."""

    traits = Traits("duly", "every attempt and its result, in PostgreSQL", submits_per_s=4_000)

    def install(self) -> str:
        """It is here already."""
        return f"duly {version('duly')}"

    @asynccontextmanager
    async def running(self, servers: Servers) -> AsyncIterator[RunningDuly]:
        """A node on these servers."""
        with temporary_folder() as notes:
            async with running_on(
                *servers,
                environ={"BENCH_NOTES": str(notes)},
                worker_module="benchmarks.peers.noting_worker",
            ) as rig:
                yield RunningDuly(rig, notes)


def _task(due: float, number: int) -> dict[str, object]:
    run_at = datetime.fromtimestamp(due, UTC).isoformat()
    payload = {"n": number, "text": TEXT}
    return {"type": TASK_TYPE, "queue": QUEUE, "payload": payload, "run_at": run_at}
