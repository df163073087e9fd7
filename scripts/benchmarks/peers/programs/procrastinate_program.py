"""Procrastinate on psycopg 3, with concurrent jobs, notifications, and a short interval of polling.

A job that was deferred to a time is only found by polling, every 5 s by default.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job

from benchmarks.peers.notes import TEXT, Notes
from benchmarks.peers.programs.order import CALLERS, answer, one_by_one, read_order

_CONCURRENCY = 50
_POLL_S = 0.05

_notes = Notes(os.environ["BENCH_NOTES"])
app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_DATABASE_URL"], max_size=CALLERS))


async def _noop(n: int, text: str) -> None:
    pass


async def _noted(n: int, text: str) -> None:
    _notes.started(n)


_tasks = {
    noted: app.task(name=run.__name__, queue="bench")(run)
    for noted, run in ((False, _noop), (True, _noted))
}


def _job(due: float, number: int, noted: bool) -> Job:
    deferrer = _tasks[noted].configure(schedule_at=datetime.fromtimestamp(due, UTC))
    job: Job = deferrer.make_new_job(n=number, text=TEXT)
    return job


def _jobs(dues: Sequence[float], numbers: Sequence[int], noted: bool) -> list[Job]:
    return [_job(due, number, noted) for due, number in zip(dues, numbers, strict=True)]


async def install() -> None:
    """Make the tables."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    print("{}")


async def submit() -> None:
    """1,000 in one call, or one by one."""
    order = read_order()
    async with app.open_async():
        began = time.perf_counter()
        if order.single:
            defer = app.job_manager.defer_job_async
            await one_by_one(order, lambda due, n: defer(_job(due, n, order.noted)))
        else:
            for dues, numbers in order.batches():
                await app.job_manager.batch_defer_jobs_async(_jobs(dues, numbers, order.noted))
        answer(time.perf_counter() - began, order.dues)


async def work() -> None:
    """Until SIGTERM."""
    async with app.open_async():
        _notes.ready()
        await app.run_worker_async(
            queues=["bench"], concurrency=_CONCURRENCY, fetch_job_polling_interval=_POLL_S
        )


def main(verb: str) -> None:
    """Do one of the three."""
    asyncio.run({"install": install, "submit": submit, "work": work}[verb]())
