"""Take millions of tasks through a store, from submission to the drop of their day, and tell what grows.

No node and no worker: only storage's own statements, in the batches in which a node sends them, on a clock that
makes many days of the run, so that day partitions are made, filled and dropped. Most tasks are due within the hour,
some days later; some fail at first; some have idempotency keys. Every so many lifecycles a JSON line has the sizes
of tables and indexes, dead rows, and what the statements took. The verdicts at the end, and the exit code, are those
of a soak: whether the second half is higher than the first. See docs/performance.md.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psutil

from benchmarks.figures import machine
from benchmarks.processes import run
from benchmarks.rig import connected, embedded_servers
from benchmarks.soak import judge
from duly.storage import claims, slots, submitting, upkeep
from duly.storage.claims import Claimed, Ended, Settlement
from duly.storage.database import Database
from duly.storage.ids import uuid7
from duly.storage.migrate import migrate
from duly.storage.slots import SLOTS, Cursor, DueRow

_OWNER = "lifecycles"
_SUBMITTED = 1000  # a request's
_CLAIMED = 200  # at once by a dispatcher
_PER_SLOT = 16  # rows of a sweep
_SAMPLES = 50
_DAYS = 20
_RETENTION = timedelta(days=1)
_KEYS_FOR = timedelta(hours=6)
_KEYED = 0.05  # of the requests
_FAILING = 0.03  # of the first attempts
_LATER = 0.01  # of the tasks are due up to three days later, the others within the hour
_BEGINNING = Cursor(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))

_SIZES = """
    select c.relname as name, c.relkind as kind, pg_relation_size(c.oid) as bytes,
           coalesce(p.relname, c.relname) as of
    from pg_class c left join pg_index i on i.indexrelid = c.oid left join pg_class p on p.oid = i.indrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'i')
"""
_LIVE = ("tasks", "idempotency_keys", "slots")
_KEPT = ("finished_tasks_", "runs_")
_ROWS = """
    select n_dead_tup as dead, autovacuum_count as vacuums from pg_stat_user_tables where relname = 'tasks'
"""


class Lifecycles:
    """So many tasks on their way through one store."""

    def __init__(self, db: Database, count: int) -> None:
        self.done = 0
        self.took_ms: defaultdict[str, list[float]] = defaultdict(list)
        self.now = datetime.now(UTC)
        self._db = db
        self._left = count
        self._step = timedelta(days=_DAYS) * _SUBMITTED / count
        self._epochs: dict[int, int] = {}

    async def begin(self) -> None:
        """Own the slots, and have the first days' partitions."""
        self._epochs = (await slots.take(self._db, range(SLOTS), _OWNER, self.now)).epochs
        await self._tidy()

    async def round(self) -> None:
        """One step of the clock: some come, and what is due runs."""
        day = self.now.date()
        self.now += self._step
        if self.now.date() != day:
            await self._tidy()
        await asyncio.gather(self._submit(), self._work())

    async def _submit(self) -> None:
        if self._left <= 0:
            return
        count = min(self._left, _SUBMITTED)
        self._left -= count
        keyed = random.random() < _KEYED
        tasks = [_new_task(self.now, keyed=keyed) for _ in range(count)]
        with self._timed("submit 1000"):
            await submitting.submit_all(self._db, tasks, self.now, self.now + _KEYS_FOR, self.now)
        await upkeep.expire_keys(self._db, self.now)

    async def _work(self) -> None:
        cursors = dict.fromkeys(range(SLOTS), _BEGINNING)
        with self._timed("sweep"):
            rows = (await slots.due(self._db, cursors, self.now, _PER_SLOT)).rows
        rows.sort(key=lambda row: row.next_run_at)
        groups = [rows[at : at + _CLAIMED] for at in range(0, len(rows), _CLAIMED)]
        await asyncio.gather(*(self._run(group) for group in groups))

    async def _run(self, rows: Sequence[DueRow]) -> None:
        epochs = {row.slot: self._epochs[row.slot] for row in rows}
        with self._timed("claim 200"):
            claim = await claims.claim(self._db, _OWNER, rows, epochs, self.now)
        if len(claim.tasks) != len(rows):
            raise RuntimeError(f"{len(claim.tasks)} of {len(rows)} tasks could be claimed")
        failing = [x for x in claim.tasks if x.retry_count == 0 and random.random() < _FAILING]
        failed = {task.id for task in failing}
        reports = [self._ended(task) for task in claim.tasks if task.id not in failed]
        with self._timed("complete 200"):
            await claims.complete(self._db, reports, self.now)
        if failing:
            await self._retry(failing)
        self.done += len(reports)

    async def _retry(self, tasks: Sequence[Claimed]) -> None:
        attempts = await claims.attempts(self._db, [(task.id, task.token) for task in tasks])
        again_at = self.now + timedelta(minutes=1)
        ended = [self._ended(task)._replace(outcome="failed", error='"no"') for task in tasks]
        decisions = [Settlement(one, attempts[one.id], again_at, counts=True) for one in ended]
        with self._timed("retry 6"):
            await claims.settle(self._db, decisions, self.now)

    def _ended(self, task: Claimed) -> Ended:
        return Ended(task.id, task.token, "completed", "w1", self.now, self.now, result="1")

    async def _tidy(self) -> None:
        """What upkeep does, once a day."""
        await upkeep.make_partitions(self._db, self.now.date())
        with self._timed("drop of a day"):
            await upkeep.drop_old_days(self._db, self.now - _RETENTION)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.took_ms[name].append((time.perf_counter() - began) * 1000)


def _new_task(now: datetime, *, keyed: bool) -> submitting.NewTask:
    ahead_s = random.uniform(0, 3 * 86_400 if random.random() < _LATER else 3600)
    task_id = uuid7(int(now.timestamp() * 1000))
    due = now + timedelta(seconds=ahead_s)
    return submitting.NewTask(
        id=task_id, type=f"type.{random.randrange(10)}", queue=f"queue{random.randrange(3)}",
        payload=json.dumps({"n": random.randrange(10**6), "text": "x" * 50}), due=due, max_retries=3,
        backoff=None, timeout=300.0, misfire_grace=None, on_lost="retry",
        priority=random.choice([5, 5, 5, 5, 5, 5, 5, 5, 5, 9]), key=str(task_id) if keyed else None,
        fingerprint=b"f" if keyed else None, own_id=False, created_at=now, occurrence=due,
        tags='{"team": "a"}' if random.random() < 0.1 else "{}",
    )  # fmt: skip


# What is looked at


async def _sample(connection: Any, lifecycles: Lifecycles) -> dict[str, float]:
    sample: dict[str, float] = {"done": lifecycles.done}
    kept = partitions = 0
    for row in await connection.fetch(_SIZES):
        if row["of"] in _LIVE:
            kind = "table" if row["kind"] == b"r" else "index"
            sample[f"{kind} {row['name']}, bytes"] = row["bytes"]
        elif row["of"].startswith(_KEPT):
            kept += row["bytes"]
            partitions += row["kind"] == b"r"
    sample["kept by day, bytes"] = kept
    sample["partitions of finished tasks and runs, count"] = partitions
    sample["catalog, bytes"] = await connection.fetchval(
        "select sum(pg_total_relation_size(oid))::bigint from pg_class"
        " where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r'"
    )
    rows = await connection.fetchrow(_ROWS)
    sample["dead rows of tasks"] = rows["dead"]
    for name, values in lifecycles.took_ms.items():
        sample[f"{name}, ms"] = round(statistics.median(values), 2)
    lifecycles.took_ms.clear()
    return sample


async def _processor_s(connection: Any) -> float:
    """Of the sessions that work on this database, on this machine."""
    found = await connection.fetch(
        "select pid from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and pid <> pg_backend_pid()"
    )
    times = [psutil.Process(row["pid"]).cpu_times() for row in found]
    return float(sum(one.user + one.system for one in times))


async def measure(url: str, count: int, samples: int = _SAMPLES) -> list[dict[str, float]]:
    """Take `count` tasks through the store of this URL, which has to be empty; prints each sample."""
    await migrate(url)
    db = Database(url, statement_timeout_s=60)
    found: list[dict[str, float]] = []
    try:
        async with connected(url) as connection:
            lifecycles = Lifecycles(db, count)
            await lifecycles.begin()
            began, spent_s, done = time.perf_counter(), 0.0, 0
            while lifecycles.done < count:
                await lifecycles.round()
                if lifecycles.done - done < count / samples and lifecycles.done < count:
                    continue
                sample, now_s = (
                    await _sample(connection, lifecycles),
                    await _processor_s(connection),
                )
                new = lifecycles.done - done
                sample["PostgreSQL's processor time, us a lifecycle"] = (
                    (now_s - spent_s) * 1e6 / new
                )
                sample["lifecycles/s"] = new / (time.perf_counter() - began)
                began, spent_s, done = time.perf_counter(), now_s, lifecycles.done
                found.append(sample)
                print(json.dumps({**sample, **machine()}), flush=True)
    finally:
        await db.close()
    return found


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(prog="scripts/bench_lifecycles", description=__doc__)
    parser.add_argument("--lifecycles", type=int, default=15_000_000, help="(default: %(default)s)")
    sys.exit(run(_main(parser.parse_args().lifecycles)))


async def _main(count: int) -> int:
    async with embedded_servers() as servers:
        samples = await measure(servers.database_url, count)
    verdicts = judge(
        [{k: v for k, v in s.items() if k.endswith(("bytes", "count"))} for s in samples]
    )
    for name, verdict in verdicts.items():
        print(json.dumps({"line": name, **verdict}))
    grown = sorted(name for name, verdict in verdicts.items() if verdict["verdict"] == "grows")
    print(json.dumps({"lifecycles": count, "grows": grown}), flush=True)
    return 1 if grown else 0


if __name__ == "__main__":
    main()
