"""The measures of `scripts/bench`. Each is one run and answers its figures by name."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import load
import psutil
from rig import QUEUE, TASK_TYPE, Rig

Figures = dict[str, float]

_HOUR_S = 3600
_CONNECTIONS = 16
_BATCH = 1000
_WORKERS = 2
# A backend that has become idle tells what it did after 10 s at the latest.
_SETTLE_S = 12


class Sizes(NamedTuple):
    """How much of each."""

    single: int = 10_000
    batch: int = 40_000
    drain: int = 20_000
    lag_s: int = 10
    idle_tasks: int = 100_000
    idle_s: int = 30


QUICK = Sizes(single=2_000, batch=10_000, drain=5_000, lag_s=3, idle_tasks=20_000, idle_s=8)


def measures(sizes: Sizes) -> dict[str, Callable[[Rig], Awaitable[Figures]]]:
    """Every measure by name, in the order in which they are taken."""
    return {
        "submit_single": partial(submit_single, count=sizes.single),
        "submit_batch": partial(submit_batch, count=sizes.batch),
        "drain": partial(drain, count=sizes.drain),
        "lag_100": partial(lag, rate=100, seconds=sizes.lag_s),
        "lag_500": partial(lag, rate=500, seconds=sizes.lag_s),
        "idle": partial(idle, tasks=sizes.idle_tasks, seconds=sizes.idle_s),
    }


async def submit_single(rig: Rig, count: int) -> Figures:
    """One task a request over 16 connections that each wait for their answer."""
    await rig.set_workers(0)
    began = time.perf_counter()
    took_ms = await load.post(f"{rig.api}/v1/tasks", _task(delay=_HOUR_S), count, _CONNECTIONS)
    seconds = time.perf_counter() - began
    await _forget(rig)
    took_ms.sort()
    return {
        "tasks_per_s": len(took_ms) / seconds,
        "p50_ms": _share(took_ms, 0.5),
        "p99_ms": _share(took_ms, 0.99),
    }


async def submit_batch(rig: Rig, count: int) -> Figures:
    """A thousand tasks a request, two requests at a time."""
    await rig.set_workers(0)
    tasks = [_task(delay=_HOUR_S)] * (count // 2)
    began = time.perf_counter()
    await asyncio.gather(rig.submit(tasks), rig.submit(tasks))
    seconds = time.perf_counter() - began
    await _forget(rig)
    return {"tasks_per_s": 2 * len(tasks) / seconds}


async def drain(rig: Rig, count: int) -> Figures:
    """Tasks all due at one instant, recorded by how many a second from that instant on."""
    await rig.set_workers(_WORKERS)
    due = datetime.now(UTC) + timedelta(seconds=3 + count / 5_000)
    ids = await rig.submit([_task(run_at=due.isoformat())] * count)
    if datetime.now(UTC) > due:
        raise RuntimeError("they were due before all of them were submitted")
    lags_ms = await rig.lags_ms(ids, 30 + count / 200)
    seconds = (await rig.wait_recorded(ids, 10) - due).total_seconds()
    return {"tasks_per_s": count / seconds, "early": sum(lag < 0 for lag in lags_ms)}


async def lag(rig: Rig, rate: int, seconds: int) -> Figures:
    """Tasks submitted ahead, evenly spaced: from the due time to the handler's start."""
    await rig.set_workers(_WORKERS)
    first = datetime.now(UTC) + timedelta(seconds=2 + rate * seconds / 5_000)
    dues = [first + timedelta(seconds=n / rate) for n in range(rate * seconds)]
    ids = await rig.submit([_task(run_at=due.isoformat()) for due in dues])
    lags_ms = await rig.lags_ms(ids, 60 + 2 * seconds)
    return {
        "p50_ms": _share(lags_ms, 0.5),
        "p99_ms": _share(lags_ms, 0.99),
        "max_ms": lags_ms[-1],
        "early": sum(lag < 0 for lag in lags_ms),
    }


async def idle(rig: Rig, tasks: int, seconds: int) -> Figures:
    """What a node and its servers do while nothing is due and many tasks wait."""
    await rig.set_workers(0)
    await rig.submit([_task(delay=_HOUR_S)] * tasks)
    await asyncio.sleep(_SETTLE_S)
    before = await _counters(rig)
    await asyncio.sleep(seconds)
    after = await _counters(rig)
    await _forget(rig)
    spent = {name: (after[name] - before[name]) / seconds for name in before}
    return {
        "statements_per_s": spent["transactions"],
        "redis_commands_per_s": spent["commands"],
        "node_cpu_percent": 100 * spent["node_cpu_s"],
    }


async def _counters(rig: Rig) -> Figures:
    # A backend tells its counts once a second at most; ours are few and part of the answer.
    transactions = await rig.database.fetchval(
        "select xact_commit + xact_rollback from pg_stat_database"
        " where datname = current_database()"
    )
    info: dict[str, Any] = await rig.redis.info("stats")
    times = rig.node.cpu_times()
    return {
        "transactions": transactions,
        "commands": info["total_commands_processed"],
        "node_cpu_s": times.user + times.system,
    }


async def _forget(rig: Rig) -> None:
    """Take what waits out of the store, so that the next measure finds it as the first did."""
    await rig.database.execute("delete from tasks where queue = $1 and status = 'pending'", QUEUE)
    await rig.database.execute("vacuum analyze tasks")


def _task(**when: Any) -> dict[str, Any]:
    return {"type": TASK_TYPE, "queue": QUEUE, "payload": {"n": 1, "text": "x" * 100}, **when}


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def machine() -> dict[str, Any]:
    """Where and when: load averages tell who else was at work."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": psutil.cpu_count(),
        "load": [round(one, 2) for one in psutil.getloadavg()],
    }
