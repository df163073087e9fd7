"""Measure whether what Duly does costs the same in a store of millions as in a small one.

Fills a store of each size, starts a node on each, and does the same to all of them in turns. Prints a JSON
line for each operation: its median in each store, and the largest of them over the first. See
docs/performance.md.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import uvloop

from benchmarks import large_store
from benchmarks.figures import machine
from benchmarks.rig import QUEUE, TASK_TYPE, Rig, running, running_on
from benchmarks.scenarios.idle import counters
from duly.storage import slots, sweeps, upkeep
from duly.storage.database import Database
from duly.storage.slots import BEGINNING, SLOTS, Cursor

_PAGE = 1000
_SOME = 400  # ids that are asked for
_SETTLE_S = 12
_WHEEL_HORIZON_S = 3600  # of the node whose wheel is to be full
_WHEEL_WAIT_S = 60
_WHEEL_SETTLED = 5  # looks, a second apart
_NO_ID = UUID(int=0)

Operation = Callable[["Store"], Awaitable[float]]


@dataclass
class Store:
    """One size: a node on it, a pool as nodes have it, and ids of tasks that wait."""

    rig: Rig
    db: Database
    ids: list[str]
    first_due: datetime
    cursors: dict[int, Cursor] = field(default_factory=dict)
    """How far its tasks have been read ahead."""

    async def http(self, method: str, path: str, body: object = None) -> tuple[float, Any]:
        """A request that has to succeed: milliseconds, and the answer."""
        began = time.perf_counter()
        url = f"{self.rig.api}/v1/{path}"
        async with self.rig.http.request(method, url, json=body) as answer:
            found = await answer.json()
            answer.raise_for_status()
            return (time.perf_counter() - began) * 1000, found


async def page(store: Store) -> float:
    """What a node reads ahead: the next thousand rows of all slots."""
    if len(store.cursors) < SLOTS:
        store.cursors = dict.fromkeys(range(SLOTS), Cursor(store.first_due, _NO_ID))
    return await _page(store)


async def first_page(store: Store) -> float:
    """The same from somewhere in the next hours, as a node that starts then reads it first."""
    after = Cursor(store.first_due + timedelta(hours=random.uniform(0, 12)), _NO_ID)
    store.cursors = dict.fromkeys(range(SLOTS), after)
    return await _page(store)


async def _page(store: Store) -> float:
    before = store.first_due + timedelta(days=2)
    began = time.perf_counter()
    found = await slots.due(store.db, store.cursors, before, _PAGE // SLOTS + 1)
    took_ms = (time.perf_counter() - began) * 1000
    if len(found.rows) < _PAGE:
        raise RuntimeError(f"{len(found.rows)} rows: the store is too small")
    store.cursors = found.more
    return took_ms


async def sweep(store: Store) -> float:
    """A look for what is due, where nothing is."""
    cursors = dict.fromkeys(range(SLOTS), BEGINNING)
    began = time.perf_counter()
    await sweeps.sweep(store.db, cursors, store.first_due, _PAGE // SLOTS + 1)
    return (time.perf_counter() - began) * 1000


async def count(store: Store) -> float:
    """What a node counts every ten seconds."""
    began = time.perf_counter()
    await store.db.fetch("count_due", list(range(SLOTS)), store.first_due)
    return (time.perf_counter() - began) * 1000


async def reaper(store: Store) -> float:
    """A look for running tasks that nobody works at."""
    began = time.perf_counter()
    await slots.running_since(store.db, range(SLOTS), datetime.now(UTC), _PAGE)
    return (time.perf_counter() - began) * 1000


async def tidy(store: Store) -> float:
    """What a node does every ten minutes: partitions and idempotency keys."""
    began = time.perf_counter()
    await upkeep.make_partitions(store.db, datetime.now(UTC).date())
    await upkeep.expire_keys(store.db, datetime.now(UTC))
    return (time.perf_counter() - began) * 1000


async def submit(store: Store) -> float:
    """One task, due in a day."""
    body = {"type": TASK_TYPE, "queue": QUEUE, "payload": {"n": 1}, "delay": 86_400}
    return (await store.http("POST", "tasks", body))[0]


async def cancel(store: Store) -> float:
    """A task that was there from the beginning."""
    return (await store.http("POST", f"tasks/{store.ids.pop()}/cancel"))[0]


def get(path: str) -> Operation:
    """A request; in `path` {id} is a task that waits, {due} some hours from now."""

    async def ask(store: Store) -> float:
        due = (store.first_due + timedelta(hours=random.uniform(2, 12))).strftime("%FT%TZ")
        return (await store.http("GET", path.format(id=random.choice(store.ids), due=due)))[0]

    return ask


OPERATIONS: dict[str, Operation] = {
    "prefetch page of 1000": page,
    "first page after a start": first_page,
    "sweep": sweep,
    "count of due tasks": count,
    "reaper's look": reaper,
    "upkeep": tidy,
    "submit": submit,
    "get": get("tasks/{id}"),
    "explain": get("tasks/{id}/explain"),
    "list": get("tasks?limit=50"),
    "list of a type": get("tasks?limit=50&type=type.3"),
    "list by due time": get("tasks?limit=50&due_after={due}"),
    "list of a rare queue": get("tasks?limit=50&queue=rare"),
    "cancel": cancel,
}


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(prog="scripts/bench_size", description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[100_000, 20_000_000],
                        help="that wait in each store (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=40, help="(default: %(default)s)")
    parser.add_argument("--idle-s", type=int, default=30, help="seconds (default: %(default)s)")
    parser.add_argument("--store", nargs=2, action="append", metavar=("DATABASE_URL", "REDIS_URL"),
                        help="stores that are filled already, instead of --tasks: nothing may be due for"
                        " the time of the measurement")  # fmt: skip
    uvloop.run(_measure(parser.parse_args()))


async def _measure(args: argparse.Namespace) -> None:
    urls = args.store or [(None, None)] * len(args.tasks)
    sizes = [0] * len(args.store) if args.store else args.tasks
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(_store(database, redis, size))
            for (database, redis), size in zip(urls, sizes, strict=True)
        ]
        await asyncio.sleep(_SETTLE_S)
        _tell(await _idle(stores, args.idle_s))
        _tell(await _in_turns(stores, args.rounds))
        _tell({"start of a node, ms": [await _start_ms(store.rig) for store in stores]})
        _tell({"full wheel": [await _full_wheel(store.rig) for store in stores]})


@asynccontextmanager
async def _store(database: str | None, redis: str | None, size: int) -> AsyncIterator[Store]:
    async def fill(connection: Any) -> None:
        began = time.perf_counter()
        await large_store.fill(connection, size, size // 7)
        print(f"{size} tasks: {time.perf_counter() - began:.0f} s", file=sys.stderr)

    async with running(database, redis, fill if size else None) as rig:
        db = Database(rig.environ["DULY_DATABASE_URL"])
        try:
            row = await rig.database.fetchrow(
                "select min(next_run_at) as due from tasks where status = 'pending'"
                " and next_run_at > now()"
            )
            ids = await rig.database.fetch(
                "select id from tasks where status = 'pending' and schedule is null and id > $1"
                " order by id limit $2",
                _NO_ID,
                _SOME,
            )
            yield Store(rig, db, [str(one["id"]) for one in ids], row["due"])
        finally:
            await db.close()


async def _in_turns(stores: list[Store], rounds: int) -> dict[str, list[float]]:
    took_ms: dict[str, list[list[float]]] = {name: [[] for _ in stores] for name in OPERATIONS}
    for _ in range(rounds + 1):  # the first round opens connections and plans
        for name, operation in OPERATIONS.items():
            for number, store in enumerate(stores):
                took_ms[name][number].append(await operation(store))
    return {
        f"{name}, ms": [statistics.median(values[1:]) for values in both]
        for name, both in took_ms.items()
    }


async def _idle(stores: list[Store], seconds: int) -> dict[str, list[float]]:
    before = [await _counters(store.rig) for store in stores]
    await asyncio.sleep(seconds)
    after = [await _counters(store.rig) for store in stores]
    spent = {
        f"idle, {name}": [(b[name] - a[name]) / seconds for a, b in zip(before, after, strict=True)]
        for name in before[0]
    }
    memory = [store.rig.node.memory_info().rss / 2**20 for store in stores]
    return {**spent, "memory of an idle node, MB": memory}


async def _counters(rig: Rig) -> dict[str, float]:
    seen = await counters(rig)
    return {
        "statements/s": seen["transactions"],
        "Redis commands/s": seen["commands"],
        "% of a core": 100 * seen["node_cpu_s"],
    }


async def _start_ms(rig: Rig) -> float:
    """From the start of a node until it has all slots."""
    await rig.stop()
    began = time.perf_counter()
    await rig.set_nodes(1)
    return (time.perf_counter() - began) * 1000


async def _full_wheel(rig: Rig) -> dict[str, float]:
    """Entries and memory of a node that looks so far ahead that its wheel is full, if the store is."""
    await rig.stop()
    urls = rig.environ["DULY_DATABASE_URL"], rig.environ["DULY_REDIS_URL"]
    async with running_on(*urls, environ={"DULY_HORIZON_S": str(_WHEEL_HORIZON_S)}) as other:
        entries, unchanged = -1.0, 0
        until = time.monotonic() + _WHEEL_WAIT_S
        while time.monotonic() < until and unchanged < _WHEEL_SETTLED:
            await asyncio.sleep(1)
            now = await _wheel_entries(other)
            unchanged = unchanged + 1 if now == entries else 0
            entries = now
        return {"entries": entries, "MB": other.node.memory_info().rss / 2**20}


async def _wheel_entries(rig: Rig) -> float:
    async with rig.http.get(f"{rig.api}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next(float(x.split(" ")[1]) for x in lines if x.startswith("duly_wheel_entries "))


def _tell(figures: dict[str, list[Any]]) -> None:
    for name, values in figures.items():
        line: dict[str, Any] = {"figure": name, "stores": values}
        if all(isinstance(value, float) for value in values):
            line["stores"] = [round(value, 2) for value in values]
            line["ratio"] = round(max(values) / values[0], 2) if values[0] else None
        print(json.dumps({**line, **machine()}), flush=True)


if __name__ == "__main__":
    main()
