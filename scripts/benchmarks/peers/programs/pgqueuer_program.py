"""PgQueuer, set up as its guide to performance says.

Workers have one asyncpg connection each, take large batches (jobs are short; BENCH_BATCH_SIZE says others), and run
on uvloop as its own command does; autovacuum is set by `optimize_autovacuum`; producers have a pool. Tables are durable.
"""

import asyncio
import json
import os
import signal
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.notes import TEXT, Notes
from benchmarks.peers.programs.order import CALLERS, answer, one_by_one, read_order

_URL = os.environ["BENCH_DATABASE_URL"]
_BATCH_SIZE = int(os.environ.get("BENCH_BATCH_SIZE", "100"))
_ENTRYPOINTS = {False: "noop", True: "noted"}


async def install() -> None:
    """Make the tables."""
    connection = await asyncpg.connect(_URL)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()
    print("{}")


async def submit() -> None:
    """In lists of 1,000, or one by one."""
    order = read_order()
    entrypoint = _ENTRYPOINTS[order.noted]
    async with asyncpg.create_pool(_URL, min_size=CALLERS, max_size=CALLERS) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        began = time.perf_counter()
        if order.single:
            await one_by_one(
                order,
                lambda due, n: queries.enqueue(entrypoint, _payload(n), execute_after=_delay(due)),
            )
        else:
            for dues, numbers in order.batches():
                count = len(dues)
                await queries.enqueue(
                    [entrypoint] * count,
                    [_payload(number) for number in numbers],
                    [0] * count,
                    [_delay(due) for due in dues],
                )
        seconds = time.perf_counter() - began
        answer(seconds, await _stored(pool, order.dues))


async def _stored(pool: asyncpg.Pool, dues: list[float]) -> list[float]:
    """It takes delays, which begin when its statement begins: ask when that makes each job due."""
    rows = await pool.fetch("select payload, execute_after from pgqueuer where status = 'queued'")
    found = {json.loads(row["payload"])["n"]: row["execute_after"].timestamp() for row in rows}
    return [found.get(number, due) for number, due in enumerate(dues)]


def _payload(number: int) -> bytes:
    return json.dumps({"n": number, "text": TEXT}).encode()


def _delay(due: float) -> timedelta:
    return timedelta(seconds=max(0.0, due - time.time()))


async def work() -> None:
    """Until SIGTERM."""
    notes = Notes(os.environ["BENCH_NOTES"])
    connection = await asyncpg.connect(_URL)
    pgq = PgQueuer(AsyncpgDriver(connection))

    async def noop(job: Job) -> None:
        pass

    async def noted(job: Job) -> None:
        notes.started(json.loads(job.payload or b"")["n"])

    pgq.entrypoint(_ENTRYPOINTS[False])(noop)
    pgq.entrypoint(_ENTRYPOINTS[True])(noted)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pgq.shutdown.set)
    notes.ready()
    await pgq.run(batch_size=_BATCH_SIZE, dequeue_timeout=timedelta(seconds=10))


def main(verb: str) -> None:
    """Do one of the three."""
    uvloop.run({"install": install, "submit": submit, "work": work}[verb]())
