"""Let millions of tasks fall due within one minute, and tell what the node holds of them and whether it keeps their order.

A node with two workers, on a store of its own, looks so far ahead that its wheel is full long before. Every five
seconds a JSON line has the node's memory, and what is in its wheel and among its due tasks. The last line tells the
most memory that the node's process took, and how far the handlers' starts were from the order in which the tasks
were due: "overtaken" is by how much later a task was due that had started before, "left behind" the same of the first
task that has not started. See docs/performance.md.
"""

import argparse
import asyncio
import json
import statistics
import time
from datetime import datetime, timedelta
from typing import Any

import psutil

from benchmarks.figures import machine, share
from benchmarks.processes import run
from benchmarks.rig import QUEUE, TASK_TYPE, Rig, embedded_servers, running_on

_EVERY_S = 5.0
_LOOK_S = 0.2
_SPIKE = timedelta(minutes=1)
_WORKERS = 2
_CHUNK = 100_000
_SETTINGS = {"DULY_HORIZON_S": "3600"}

_FILL = """
    insert into tasks (id, type, queue, payload, next_run_at, occurrence, created_at, updated_at)
    select gen_random_uuid(), $1, $2, '{"n": 1}', due, due, now(), now()
    from (select $3::timestamptz + random() * $4::interval as due from generate_series(1, $5::int)) n
"""
_STARTS = """
    select extract(epoch from max(occurrence) over (order by started_at) - occurrence)::float8 as overtaken,
           extract(epoch from started_at - occurrence)::float8 as late
    from runs where started_at is not null
"""


_LEFT = """
    select greatest(0, extract(epoch from max(r.occurrence) - (
        select min(next_run_at) from tasks where status = 'pending'
    )))::float8
    from runs r where r.started_at is not null
"""


class Peak:
    """The most memory that a process has been seen to take, in MB."""

    def __init__(self, process: psutil.Process) -> None:
        self.mb = self.now_mb = 0.0
        self._process = process

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.now_mb = self._process.memory_info().rss / 2**20
            self.mb = max(self.mb, self.now_mb)
            await asyncio.sleep(_LOOK_S)


async def measure(
    database: str, redis: str, count: int, lead_s: float, drain_s: float
) -> dict[str, Any]:
    """`count` tasks, the first due in `lead_s` seconds; answers the figures `drain_s` after that, or once all ran."""
    first: datetime | None = None

    async def fill(connection: Any) -> None:
        nonlocal first
        first = await connection.fetchval("select now()") + timedelta(seconds=lead_s)
        await connection.execute("set synchronous_commit = off")
        for at in range(0, count, _CHUNK):
            await connection.execute(
                _FILL, TASK_TYPE, QUEUE, first, _SPIKE, min(_CHUNK, count - at)
            )
        await connection.execute("vacuum analyze tasks")

    async with running_on(database, redis, fill, _SETTINGS) as rig:
        if first is None:
            raise RuntimeError("the store was not filled")
        peak = Peak(rig.node)
        watching = asyncio.create_task(peak.watch())
        try:
            await rig.set_workers(_WORKERS)
            ahead = await _ahead_s(rig, first)
            wheel = await _look_until(rig, peak, time.monotonic() + ahead)
            before_mb = peak.mb
            await _look_until(rig, peak, time.monotonic() + drain_s, count)
        finally:
            watching.cancel()
        return {
            "tasks": count,
            "ready before the first was due, s": round(ahead, 1),
            "most in the wheel": wheel,
            "most MB until the first was due": round(before_mb, 1),
            "most MB": round(peak.mb, 1),
            **await _order(rig),
        }


async def _ahead_s(rig: Rig, first: datetime) -> float:
    ahead: float = await rig.database.fetchval(
        "select extract(epoch from $1 - clock_timestamp())::float8", first
    )
    return ahead


async def _look_until(rig: Rig, peak: Peak, until: float, count: int | None = None) -> int:
    """Print what is seen until then, or until so many have ended; answers the most seen in the wheel."""
    most = 0
    while True:
        seen = await _metrics(rig)
        most = max(most, seen["wheel"])
        print(json.dumps({**seen, "MB": round(peak.now_mb, 1), **machine()}), flush=True)
        left_s = until - time.monotonic()
        if left_s <= 0 or seen["recorded"] == count:
            return most
        await asyncio.sleep(min(left_s, _EVERY_S))


async def _metrics(rig: Rig) -> dict[str, int]:
    async with rig.http.get(f"{rig.api}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    names = {
        "wheel": "duly_wheel_entries",
        "due": "duly_ready_entries",
        "claimed": "duly_claimed_total",
        "recorded": "duly_recorded_total",
    }
    return {
        name: round(
            sum(
                float(x.rsplit(" ", 1)[1])
                for x in lines
                if x.startswith((f"{metric} ", f"{metric}{{"))
            )
        )
        for name, metric in names.items()
    }


async def _order(rig: Rig) -> dict[str, Any]:
    rows = await rig.database.fetch(_STARTS)
    overtaken = sorted(row["overtaken"] for row in rows)
    if not rows:
        raise RuntimeError("nothing has started")
    return {
        "started": len(rows),
        "started early": sum(row["late"] < 0 for row in rows),
        "overtaken p50, s": round(statistics.median(overtaken), 3),
        "overtaken p99, s": round(share(overtaken, 0.99), 3),
        "overtaken most, s": round(overtaken[-1], 3),
        "left behind, s": round(await rig.database.fetchval(_LEFT), 3),
    }


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(prog="scripts/bench_spike", description=__doc__)
    parser.add_argument("--tasks", type=int, default=2_000_000, help="(default: %(default)s)")
    parser.add_argument("--lead-s", type=float, default=300.0,
                        help="until the first is due, in which the store is filled (default: %(default)s)")  # fmt: skip
    parser.add_argument("--drain-s", type=float, default=120.0,
                        help="for which they run (default: %(default)s)")  # fmt: skip
    run(_main(parser.parse_args()))


async def _main(args: argparse.Namespace) -> None:
    async with embedded_servers() as servers:
        urls = servers.database_url, servers.redis_url
        figures = await measure(*urls, args.tasks, args.lead_s, args.drain_s)
    print(json.dumps({**figures, **machine()}), flush=True)


if __name__ == "__main__":
    main()
