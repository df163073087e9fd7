"""How many submissions a second are durably stored."""

import asyncio
import time
from dataclasses import dataclass

from benchmarks import load
from benchmarks.figures import Outcome, share
from benchmarks.rig import Rig
from benchmarks.scenarios.tasks import HOUR_S, forget, task

_CONNECTIONS = 16


@dataclass(frozen=True)
class SubmitSingle:
    """One task a request over 16 connections that each wait for their answer."""

    count: int

    async def run(self, rig: Rig) -> Outcome:
        """Tasks a second, and how long an answer took."""
        await rig.set_workers(0)
        began = time.perf_counter()
        took_ms = await load.post(
            f"{rig.api}/v1/tasks", task(delay=HOUR_S), self.count, _CONNECTIONS
        )
        seconds = time.perf_counter() - began
        await forget(rig)
        took_ms.sort()
        rate = len(took_ms) / seconds
        return Outcome(
            {"tasks_per_s": rate, "p50_ms": share(took_ms, 0.5), "p99_ms": share(took_ms, 0.99)}
        )


@dataclass(frozen=True)
class SubmitBatch:
    """A thousand tasks a request, two requests at a time."""

    count: int

    async def run(self, rig: Rig) -> Outcome:
        """Tasks a second."""
        await rig.set_workers(0)
        tasks = [task(delay=HOUR_S)] * (self.count // 2)
        began = time.perf_counter()
        await asyncio.gather(rig.submit(tasks), rig.submit(tasks))
        seconds = time.perf_counter() - began
        await forget(rig)
        return Outcome({"tasks_per_s": 2 * len(tasks) / seconds})
