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
_RECORDED = "select recorded_at as at from runs where outcome = 'completed'"
_NOTED_TYPE = "bench.noted"


class RunningDuly:
    """A node whose workers note what they start, if they are asked to."""

    def __init__(self, rig: Rig, notes: Path) -> None:
        self._rig = rig
        self._notes = notes

    async def set_workers(self, count: int) -> None:
        """Have `count` workers; all have worked."""
        await self._rig.set_workers(count)
        if count:
            await self._submit([time.time()] * WARM_UPS, [WARM_UP] * WARM_UPS, _NOTED_TYPE)
            await wait_warm(self._notes)

    async def submit(
        self, dues: Sequence[float], single: bool = False, noted: bool = True
    ) -> Submitted:
        """In batches of 1,000, two requests at a time, or the same task again and again."""
        task_type = _NOTED_TYPE if noted else TASK_TYPE
        began = time.perf_counter()
        if single:
            task = _task(dues[0], 0, task_type)
            await load.post(f"{self._rig.api}/v1/tasks", task, len(dues), _CONNECTIONS)
        else:
            await self._submit(dues, range(len(dues)), task_type)
        return Submitted(time.perf_counter() - began, dues)

    async def _submit(self, dues: Sequence[float], numbers: Sequence[int], task_type: str) -> None:
        tasks = [_task(due, number, task_type) for due, number in zip(dues, numbers, strict=True)]
        half = len(tasks) // 2
        await asyncio.gather(self._rig.submit(tasks[:half]), self._rig.submit(tasks[half:]))

    async def starts(self, submitted: Submitted, timeout_s: float) -> list[Start]:
        """The first start of each task, as its handler noted it."""
        return await wait_started(self._notes, submitted.dues, timeout_s)

    async def recorded(self, count: int, timeout_s: float) -> list[float]:
        """When the runs of so many tasks were recorded."""
        return await wait_recorded(self._rig.database, _RECORDED, count, timeout_s)


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


def _task(due: float, number: int, task_type: str) -> dict[str, object]:
    run_at = datetime.fromtimestamp(due, UTC).isoformat()
    payload = {"n": number, "text": TEXT}
    return {"type": task_type, "queue": QUEUE, "payload": payload, "run_at": run_at}
