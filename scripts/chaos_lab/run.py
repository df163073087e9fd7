"""One run: servers up, load and faults, quiet, verdict."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import asyncpg
from redis.exceptions import RedisError

from chaos_lab import report, store
from chaos_lab.checker import check
from chaos_lab.cluster import Cluster
from chaos_lab.evidence import Evidence, load
from chaos_lab.faults import Faults
from chaos_lab.load import Load
from chaos_lab.rules import Broken
from chaos_lab.schedule import Fault
from chaos_lab.work import QUEUES

_READY_S: Final = 90.0
_QUIET_S: Final = 240.0
_TELL_EVERY_S: Final = 5.0
_TROUBLE: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, RedisError, OSError, TimeoutError)


@dataclass(frozen=True)
class Plan:
    """What a run does."""

    seed: int
    seconds: float
    rate: float
    faults: Sequence[Fault]


@dataclass(frozen=True)
class Verdict:
    """What came of it."""

    evidence: Evidence
    broken: list[Broken]
    facts: report.Facts

    @property
    def text(self) -> str:
        """The report."""
        return report.text(self.facts, self.evidence, self.broken)


async def run(
    cluster: Cluster,
    plan: Plan,
    tell: Callable[[str], None],
    steps: Callable[[Cluster], Coroutine[Any, Any, None]] | None = None,
) -> Verdict:
    """Run `plan` on a cluster whose servers are up; `tell` gets a line every few seconds.

    `steps` are carried out under the load, which goes on until they are done.
    """
    folder = cluster.folder
    async with _started(cluster):
        load_, faults = Load(cluster.apis, folder, plan.seed), Faults(cluster, folder)
        telling = asyncio.create_task(_tell(load_, faults, tell))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(faults.run(plan.faults))
                stepping = tasks.create_task(steps(cluster)) if steps else None

                def longer(stepping: asyncio.Task[None] | None = stepping) -> bool:
                    return stepping is not None and not stepping.done()

                tasks.create_task(load_.run(plan.rate, plan.seconds, longer))
        finally:
            telling.cancel()
        tell("all is healed: waiting until everything has ended")
        await _quiet(cluster, tell)
        await store.save(cluster.database_url, cluster.redis_url, QUEUES, folder)
    tell("checking")
    evidence = load(folder)
    facts = report.Facts(
        plan.seed, plan.seconds / 60, plan.rate, dict(faults.inflicted), cluster.crashes,
        cluster.errors(), folder,
    )  # fmt: skip
    return Verdict(evidence, check(evidence), facts)


@contextlib.asynccontextmanager
async def _started(cluster: Cluster) -> AsyncIterator[None]:
    try:
        await cluster.open()
        await _ready(cluster)
        connection = await asyncpg.connect(cluster.database_url, timeout=5)
        await connection.execute(store.EFFECTS_TABLE)
        await connection.close()
        yield
    finally:
        cluster.close()


async def _ready(cluster: Cluster) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as http:
        async with asyncio.timeout(_READY_S):
            for api in cluster.apis:
                while not await _answers(http, f"{api}/readyz"):
                    if crashes := cluster.crashes:
                        raise RuntimeError(f"it does not start: {crashes}")
                    await asyncio.sleep(0.1)


async def _answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _quiet(cluster: Cluster, tell: Callable[[str], None]) -> None:
    """Until nothing is left to do; what is left after a while is what the checker calls stuck."""
    until = time.monotonic() + _QUIET_S
    tell_at = time.monotonic() + _TELL_EVERY_S
    while time.monotonic() < until:
        with contextlib.suppress(*_TROUBLE):
            left = await store.unfinished(cluster.database_url)
            sizes = await store.leftovers(cluster.database_url, cluster.redis_url, QUEUES)
            if not left and not any(sizes.values()):
                return
            if time.monotonic() > tell_at:
                tell_at += _TELL_EVERY_S
                kept = ", ".join(f"{size} in {key}" for key, size in sizes.items() if size)
                tell(f"still {left} tasks; {kept or 'nothing in Redis'}")
        await asyncio.sleep(0.5)


async def _tell(load_: Load, faults: Faults, tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_TELL_EVERY_S)
        now = ", ".join(sorted(faults.current)) or "none"
        tell(
            f"{time.monotonic() - began:5.0f} s  {load_.submitted} accepted, {load_.unsure} unsure, "
            f"{sum(faults.inflicted.values())} faults healed, now: {now}"
        )
