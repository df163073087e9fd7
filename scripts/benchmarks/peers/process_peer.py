"""A peer that runs in an environment of its own, as processes of one program.

The program is called with `install`, `submit` or `work`; see `programs/__init__.py`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import environment, versions
from benchmarks.peers.notes import WARM_UP
from benchmarks.peers.outcomes import wait_recorded
from benchmarks.peers.peer import Servers, Submitted, Traits
from benchmarks.peers.starts import WARM_UPS, wait_ready, wait_started, wait_warm
from benchmarks.processes import SCRIPTS, spawn, stop
from benchmarks.rig import Start, connected, temporary_folder

_SUBMIT_S = 180.0


@dataclass
class RunningProcesses:
    """Worker processes of a peer, and a process for each submission."""

    command: Sequence[str]
    environ: Mapping[str, str]
    notes: Path
    database: Any
    recorded_query: str
    workers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def set_workers(self, count: int) -> None:
        """Start `count` workers; all have worked."""
        for _ in range(count):
            self.workers.append(await spawn([*self.command, "work"], self.environ))
        if count:
            await wait_ready(self.notes, count)
            await self.call("submit", {"delays": [0.0] * WARM_UPS, "number": WARM_UP})
            await wait_warm(self.notes)

    async def submit(
        self, dues: Sequence[float], single: bool = False, noted: bool = True
    ) -> Submitted:
        """By a process of its own, whose start does not count."""
        answer = await self.call("submit", {"dues": list(dues), "single": single, "noted": noted})
        return Submitted(answer["seconds"], answer["dues"])

    async def starts(self, submitted: Submitted, timeout_s: float) -> list[Start]:
        """The first start of each task, as its handler noted it."""
        return await wait_started(self.notes, submitted.dues, timeout_s)

    async def recorded(self, count: int, timeout_s: float) -> list[float]:
        """When so many outcomes were recorded."""
        return await wait_recorded(self.database, self.recorded_query, count, timeout_s)

    async def stop(self) -> None:
        """End all workers."""
        await asyncio.gather(*(stop(worker) for worker in self.workers))
        self.workers.clear()

    async def call(self, verb: str, order: Mapping[str, object]) -> Any:
        """Run the program with this verb; answers what it said. Raises RuntimeError if it failed."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            verb,
            env=dict(self.environ),
            cwd=SCRIPTS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_SUBMIT_S):
                said, _ = await process.communicate(json.dumps(order).encode())
        finally:
            await stop(process)
        if process.returncode != 0:
            raise RuntimeError(f"{verb} ended with code {process.returncode}")
        return json.loads(said)


@dataclass(frozen=True)
class ProcessPeer:
    """A peer by what it needs and the program that drives it."""

    traits: Traits
    requirements: Sequence[str]
    """For pip, exact versions; the first is the peer itself."""
    recorded_query: str = ""
    """Tells of each outcome in PostgreSQL when it was recorded, as `at`, if the peer keeps outcomes."""
    program: str = ""
    """Whose environment and program it has, if not those of its own name."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables that its program reads."""

    @property
    def _program(self) -> str:
        return self.program or self.traits.name

    def install(self) -> str:
        """Make its environment; answers the versions of what it needs."""
        names = [
            requirement.partition("==")[0].partition("[")[0] for requirement in self.requirements
        ]
        return versions(environment(self._program, self.requirements), names)

    @asynccontextmanager
    async def running(self, servers: Servers) -> AsyncIterator[RunningProcesses]:
        """Its tables made, no worker yet."""
        python = environment(self._program, self.requirements)
        async with AsyncExitStack() as stack:
            notes = stack.enter_context(temporary_folder())
            environ = {
                **os.environ,
                **self.settings,
                "PYTHONPATH": str(SCRIPTS),
                "BENCH_DATABASE_URL": servers.database_url,
                "BENCH_REDIS_URL": servers.redis_url,
                "BENCH_NOTES": str(notes),
            }
            database = await stack.enter_async_context(connected(servers.database_url))
            command = [str(python), "-P", "-m", "benchmarks.peers.programs", self._program]
            peer = RunningProcesses(command, environ, notes, database, self.recorded_query)
            stack.push_async_callback(peer.stop)
            await peer.call("install", {})
            yield peer
