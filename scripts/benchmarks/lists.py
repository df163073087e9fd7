"""Measure the lists, searches and overviews of the API in a store of millions while tasks fire.

Prints a JSON line for each request: its p50 and p95 in milliseconds. See docs/performance.md.
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import uvloop

from benchmarks import large_store
from benchmarks.figures import machine
from benchmarks.rig import QUEUE, TASK_TYPE, Rig, running

_AHEAD_S = 3
_DEPTH = 5
"""Pages of a list that are asked for before it begins anew."""


def requests(now: datetime, some_id: str) -> dict[str, str]:
    """What is asked, by name."""

    def due(hours: float, minutes: float) -> str:
        since, until = now + timedelta(hours=hours), now + timedelta(hours=hours, minutes=minutes)
        return f"due_after={quote(since.isoformat())}&due_before={quote(until.isoformat())}"

    lists = {
        "all": "",
        "by id": f"id={some_id}",
        "pending": "status=pending",
        "running": "status=running",
        "completed": "status=completed",
        "failed": "status=failed",
        "cancelled": "status=cancelled",
        "type": "type=type.3",
        "rare type": "type=rare.type",
        "unknown type": "type=no.such",
        "queue": "queue=queue2",
        "rare queue": "queue=rare",
        "type and queue": "type=type.3&queue=queue2",
        "failed of a type": "status=failed&type=type.2",
        "frequent tag": "tag=team:t3",
        "rare tag": "tag=customer:c77",
        "unknown tag": "tag=customer:x",
        "tag and type": "tag=team:t3&type=type.3",
        "periodic": "periodic=true",
        "periodic of a type": "periodic=true&type=type.3",
        "paused": "paused=true",
        "due in an hour": due(5, 60),
        "due in a minute": due(5.2, 1),
        "due in a minute, of a type": due(5.2, 1) + "&type=type.3",
        "due, tag and queue": due(5, 120) + "&tag=team:t3&queue=queue0",
        "everything at once": due(5, 60) + "&status=pending&type=type.3&queue=queue2&tag=team:t3"
        "&periodic=false&paused=false",
    }
    return {
        **{f"list, {name}": f"/v1/tasks?{query}" for name, query in lists.items()},
        "one task": f"/v1/tasks/{some_id}",
        "load by queue": "/v1/load",
        "load by type": "/v1/load?by=type",
        "stats": "/v1/stats",
        "series": "/v1/stats/series",
        "queues": "/v1/queues",
        "alerts": "/v1/alerts",
        "ledger": "/v1/ledger",
        "nodes": "/v1/nodes",
        "workers": "/v1/workers",
    }


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(prog="scripts/bench_lists", description=__doc__)
    parser.add_argument(
        "--tasks",
        type=int,
        default=10_000_000,
        help="that wait (default: %(default)s); none, and none finished: the store as it is",
    )
    parser.add_argument("--finished", type=int, default=3_000_000, help="(default: %(default)s)")
    parser.add_argument(
        "--rate", type=int, default=500, help="tasks/s that fire (default: %(default)s)"
    )
    parser.add_argument("--times", type=int, default=40, help="each request (default: %(default)s)")
    parser.add_argument("--database-url", help="an empty PostgreSQL (default: an embedded one)")
    parser.add_argument("--redis-url", help="an empty Redis or Valkey (default: an embedded one)")
    args = parser.parse_args()
    if (args.database_url is None) != (args.redis_url is None):
        parser.error("give both --database-url and --redis-url, or neither")
    uvloop.run(_measure(args))


async def _measure(args: argparse.Namespace) -> None:
    async def fill(database: Any) -> None:
        began = time.perf_counter()
        await large_store.fill(database, args.tasks, args.finished)
        print(f"filled in {time.perf_counter() - began:.0f} s", file=sys.stderr)

    prepare = fill if args.tasks or args.finished else None
    async with running(args.database_url, args.redis_url, prepare) as rig:
        await rig.set_workers(2)
        enough = asyncio.Event()
        firing = asyncio.create_task(_fire(rig, args.rate, enough))
        await asyncio.sleep(2 * _AHEAD_S)  # until they do
        took_ms = await _ask_all(rig, args.times)
        enough.set()
        starts = await rig.starts(await firing, 60)
        lags_ms = [(start.started - start.due) * 1000 for start in starts]
        for name, values in [*took_ms.items(), ("lag of what fired meanwhile", lags_ms)]:
            print(json.dumps({"request": name, **_figures(values), **machine()}), flush=True)


async def _fire(rig: Rig, rate: int, enough: asyncio.Event) -> list[str]:
    """Have so many tasks come due a second, submitted a little ahead; answers their ids."""
    ids: list[str] = []
    loop = asyncio.get_running_loop()
    began, first = loop.time(), datetime.now(UTC) + timedelta(seconds=_AHEAD_S)
    for second in itertools.count():
        dues = [first + timedelta(seconds=second + n / rate) for n in range(rate)]
        task = {"type": TASK_TYPE, "queue": QUEUE, "payload": {"n": 1}}
        ids += await rig.submit([{**task, "run_at": due.isoformat()} for due in dues])
        if enough.is_set():
            break
        await asyncio.sleep(began + second + 1 - loop.time())
    return ids


async def _ask_all(rig: Rig, times: int) -> dict[str, list[float]]:
    some_id = await rig.database.fetchval(
        "select id from tasks order by id desc limit 1 offset 9999"
    )
    paths = requests(datetime.now(UTC), some_id)
    took_ms: dict[str, list[float]] = {name: [] for name in paths}
    cursors: dict[str, str | None] = dict.fromkeys(paths)
    for turn in range(times):
        for name, path in paths.items():  # in turns, so that a disturbance hits all of them
            cursor = cursors[name] if turn % _DEPTH else None
            began = time.perf_counter()
            more = f"{'&' if '?' in path else '?'}cursor={cursor}" if cursor else ""
            async with rig.http.get(f"{rig.api}{path}{more}") as answer:
                body = await answer.json()
                answer.raise_for_status()
            took_ms[name].append((time.perf_counter() - began) * 1000)
            cursors[name] = body.get("next_cursor")
    return took_ms


def _figures(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "max_ms": 1.0}
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)
        for name, share in shares.items()
    }


if __name__ == "__main__":
    main()
