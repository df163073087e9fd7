"""Celery with Redis as its broker, set up as its guide to optimizing says for many short tasks.

A large prefetch, results ignored, a pool of threads (short tasks that wait, not compute: the quickest of
its pools here), and none of the chatter between workers. Tasks that are due later are sent with `eta`: workers take them at once and hold them.
"""

import os
import time
import warnings
from datetime import UTC, datetime

from celery import Celery
from celery.signals import worker_ready

from benchmarks.peers.notes import TEXT, Notes
from benchmarks.peers.programs.order import answer, read_order

_PREFETCH = 128

_notes = Notes(os.environ["BENCH_NOTES"])
app = Celery("bench", broker=os.environ["BENCH_REDIS_URL"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=_PREFETCH,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600},
    enable_utc=True,
)


def _noop(n: int, text: str) -> None:
    pass


def _noted(n: int, text: str) -> None:
    _notes.started(n)


_tasks = {
    noted: app.task(name=run.__name__)(run) for noted, run in ((False, _noop), (True, _noted))
}


def install() -> None:
    """There are no tables."""
    print("{}")


def submit() -> None:
    """One by one: it has no call for many."""
    order = read_order()
    task = _tasks[order.noted]
    began = time.perf_counter()
    with app.producer_pool.acquire(block=True) as producer:
        for due, number in zip(order.dues, order.numbers, strict=True):
            eta = datetime.fromtimestamp(due, UTC)
            task.apply_async((number, TEXT), eta=eta, producer=producer)
    answer(time.perf_counter() - began, order.dues)


def work() -> None:
    """Until SIGTERM."""
    warnings.filterwarnings("ignore", message="You're running the worker with superuser")
    worker_ready.connect(lambda **_: _notes.ready(), weak=False)
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")
    name = f"bench{os.getpid()}@localhost"
    app.worker_main(["worker", "--pool=threads", "--concurrency=50", f"--hostname={name}", *quiet])


def main(verb: str) -> None:
    """Do one of the three."""
    {"install": install, "submit": submit, "work": work}[verb]()
