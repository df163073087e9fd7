"""Run a node and two workers under a steady mixed load for long, and tell what grows.

Every ten seconds a JSON line has memory, open files and connections, sizes of tables and indexes, what is in
Redis, and latencies. At the end there is a line for each of these lines, with a verdict: `flat` if the second half is no higher than the first
(without the first fifth, in which everything fills up), else `grows`. What is kept by day until
`retention_s` is over, runs and finished tasks, grows by its nature: of those the verdict is about the bytes
per run. The last line, and the exit code, tell whether anything else grew.
"""

import argparse
import asyncio
import itertools
import json
import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psutil
import uvloop

from benchmarks.figures import machine
from benchmarks.rig import FLAKY_TYPE, QUEUE, TASK_TYPE, Rig, embedded_servers, running_on

_EVERY_S = 10.0
_SETTINGS = {"DULY_IDEMPOTENCY_TTL_S": "30"}
_PERIODIC = 20
_SLACK = 1.15  # of the median of the first half
_KEPT = re.compile(r"^(runs|finished_tasks|audit|rejected_reports)_(\d{8}|rest)$")
_SMALL = {"bytes": 2 << 20, "MB": 8.0, "count": 50.0, "descriptors": 5.0, "ms": 20.0}
"""Growth that is not worth a word: pages of a small table, buffers of a process, a machine a little busier."""

_TABLES = """
    select c.relname as name, pg_total_relation_size(c.oid) as bytes from pg_class c
    where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
"""
_LAGS = """
    select coalesce(percentile_cont(array[0.5, 0.99]) within group (order by lag), '{0,0}') as ms
    from (
        select extract(epoch from started_at - occurrence) * 1000 as lag from runs
        where recorded_at > now() - interval '10 s' and verdict is not null
          and attempt = 1 and started_at is not null
    ) r
"""
_INDEXES = """
    select c.relname as name, pg_relation_size(c.oid) as bytes
    from pg_class c join pg_index i on i.indexrelid = c.oid where i.indrelid = 'tasks'::regclass
"""


def main() -> None:
    """Read the arguments, and soak."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="(default: %(default)s)")
    parser.add_argument("--rate", type=int, default=50, help="tasks/s (default: %(default)s)")
    parser.add_argument("--database-url", help="an empty PostgreSQL (default: an embedded one)")
    parser.add_argument("--redis-url", help="an empty Redis or Valkey (default: an embedded one)")
    args = parser.parse_args()
    if (args.database_url is None) != (args.redis_url is None):
        parser.error("give both --database-url and --redis-url, or neither")
    sys.exit(uvloop.run(_soak(args)))


async def _soak(args: argparse.Namespace) -> int:
    async with (
        _servers(args.database_url, args.redis_url) as (database, redis),
        running_on(database, redis, environ=_SETTINGS) as rig,
    ):
        await rig.set_workers(2)
        every = [{"type": TASK_TYPE, "queue": QUEUE, "schedule": {"every": 2}}] * _PERIODIC
        await rig.submit(every)
        submitted_ms: list[float] = []
        load = asyncio.create_task(_load(rig, args.rate, submitted_ms))
        samples: list[dict[str, float]] = []
        until = time.monotonic() + args.minutes * 60
        try:
            while time.monotonic() < until:
                await asyncio.sleep(_EVERY_S)
                if load.done():
                    break
                samples.append(await _sample(rig))
                if submitted_ms:
                    samples[-1]["submission, ms"] = statistics.median(submitted_ms)
                    submitted_ms.clear()
                print(json.dumps({**samples[-1], **machine()}), flush=True)
        finally:
            load.cancel()
            await asyncio.wait([load])
        if not load.cancelled():
            raise RuntimeError("the load broke off") from load.exception()
    verdicts = judge(samples)
    for name, verdict in verdicts.items():
        print(json.dumps({"line": name, **verdict}))
    grown = sorted(name for name, verdict in verdicts.items() if verdict["verdict"] == "grows")
    print(json.dumps({"samples": len(samples), "grows": grown}), flush=True)
    return 1 if grown else 0


@asynccontextmanager
async def _servers(database: str | None, redis: str | None) -> AsyncIterator[tuple[str, str]]:
    if database is not None and redis is not None:
        yield database, redis
        return
    async with embedded_servers() as servers:
        yield servers.database_url, servers.redis_url


async def _load(rig: Rig, rate: int, submitted_ms: list[float]) -> None:
    """Each second so many tasks of all kinds; what was to come later is cancelled, changed or due by then.

    `submitted_ms` gets what each batch took until its answer.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    later: list[str] = []
    for second in itertools.count(1):
        asked = time.perf_counter()
        ids = await rig.submit(_tasks(rate, second))
        submitted_ms.append((time.perf_counter() - asked) * 1000)
        later += ids[: rate // 5]
        for task_id in later[:-rate]:  # half of them fall due before
            path = f"{rig.api}/v1/tasks/{task_id}/cancel"
            async with rig.http.post(path) as answer:
                await answer.read()
        later = later[-rate:]
        await _with_keys(rig, second)
        await asyncio.sleep(max(0.0, began + second - loop.time()))


def _tasks(rate: int, second: int) -> list[dict[str, Any]]:
    tasks = []
    for number in range(rate):
        task: dict[str, Any] = {"type": TASK_TYPE, "queue": QUEUE, "payload": {"n": second}}
        if number < rate // 5:
            task["delay"] = random.uniform(1, 10)
            task["priority"] = random.randrange(10)
        elif number < 2 * rate // 5:
            task["type"] = FLAKY_TYPE
            task["backoff"] = {"kind": "fixed", "delay": 1, "jitter": 0}
        elif number < 3 * rate // 5:
            task["concurrency_key"] = f"c{random.randrange(1000)}"
            task["fairness_key"] = f"f{random.randrange(1000)}"
            task["tags"] = {"second": str(second)}
        tasks.append(task)
    return tasks


async def _with_keys(rig: Rig, second: int) -> None:
    """Two requests with one idempotency key: one task."""
    body = {"type": TASK_TYPE, "queue": QUEUE, "payload": {"n": second}}
    for _ in range(2):
        headers = {"Idempotency-Key": f"soak-{time.time_ns() // 10**9}"}
        async with rig.http.post(f"{rig.api}/v1/tasks", json=body, headers=headers) as answer:
            await answer.read()


# What is looked at


async def _sample(rig: Rig) -> dict[str, float]:
    workers = [psutil.Process(one.pid) for one in rig.workers]
    sample = {"node, MB": _rss_mb(rig.node), "node, descriptors": rig.node.num_fds()}
    sample["largest worker, MB"] = max(map(_rss_mb, workers))
    sample["workers, descriptors"] = sum(one.num_fds() for one in workers)
    sample["sessions of PostgreSQL, descriptors"] = await rig.database.fetchval(
        "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    )
    lags = await rig.database.fetchval(_LAGS)
    sample["lag p50, ms"], sample["lag p99, ms"] = lags
    kept, runs = 0, await rig.database.fetchval("select count(*) from runs")
    for row in await rig.database.fetch(_TABLES):
        if _KEPT.match(row["name"]):
            kept += row["bytes"]
        else:
            sample[f"table {row['name']}, bytes"] = row["bytes"]
    sample["kept by day, bytes per run"] = kept / max(1, runs)
    for row in await rig.database.fetch(_INDEXES):
        sample[f"index {row['name']}, bytes"] = row["bytes"]
    info: dict[str, Any] = await rig.redis.info()
    sample["Redis, bytes"] = info["used_memory"]
    sample["clients of Redis, descriptors"] = info["connected_clients"]
    return sample | await _redis_counts(rig)


async def _redis_counts(rig: Rig) -> dict[str, float]:
    """Keys, and the entries of all streams, hashes, sets and lists together."""
    counts = {"Redis keys, count": 0.0}
    sizes = {"stream": "xlen", "hash": "hlen", "set": "scard", "zset": "zcard", "list": "llen"}
    async for key in rig.redis.scan_iter(count=1000):
        counts["Redis keys, count"] += 1
        told = await rig.redis.type(key)
        kind = told.decode() if isinstance(told, bytes) else told
        if kind in sizes:
            name = f"Redis {kind} entries, count"
            size = await getattr(rig.redis, sizes[kind])(key)
            counts[name] = counts.get(name, 0.0) + size
    return counts


def _rss_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


# Verdicts


def judge(samples: Sequence[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """For each line the medians of both halves, and whether it is flat."""
    steady = samples[len(samples) // 5 :]
    half = len(steady) // 2
    verdicts: dict[str, dict[str, Any]] = {}
    for name in sorted({name for sample in steady for name in sample}):
        first, second = (
            statistics.median([sample.get(name, 0.0) for sample in part]) if part else 0.0
            for part in (steady[:half], steady[half:])
        )
        small = _SMALL.get(name.rsplit(", ")[-1], 0.0)
        flat = second <= max(first * _SLACK, first + small)
        verdicts[name] = {
            "first": round(first, 1),
            "second": round(second, 1),
            "verdict": "flat" if flat else "grows",
        }
    return verdicts


if __name__ == "__main__":
    main()
