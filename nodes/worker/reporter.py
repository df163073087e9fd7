"""Sends outcomes: what ends together goes together, a lone outcome goes at once.

While one call is under way, further outcomes gather for the next. An outcome stays here until
Redis has accepted it; a call whose answer was lost is repeated, and the nodes drop the second
report by its token. What waits is bounded by the reader, which stops reading while `full`.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from duly.actors.patience import Patience, QueuePatience
from duly.nodes.worker.outcomes import Outcome
from duly.nodes.worker.waiting import wait_for
from duly.storage.conveyor import Conveyor, Entry, Item
from duly.storage.redis import TROUBLE, is_of_one_queue

log = logging.getLogger("duly.worker")

BATCH_MAX = 256
"""Most reports in one call: the script holds up Redis for about a millisecond."""

BATCH_BYTES_MAX = 1_000_000
"""A call ends with the report that reaches this many bytes."""

_SIZE = 200  # of a report without its result or error, about

WAITING_MAX = 2_000
"""Reports that may wait before the worker stops reading tasks."""

WAITING_BYTES_MAX = 64_000_000
"""The same, in bytes."""


class Reporter:
    """Holds the outcomes of one worker until Redis has them."""

    def __init__(self, conveyor: Conveyor, worker_id: str, on_progress: Callable[[], None]) -> None:
        """`on_progress` is called whenever Redis has accepted something."""
        self._conveyor = conveyor
        self._worker_id = worker_id
        self._on_progress = on_progress
        self._waiting: dict[str, deque[tuple[Item, int]]] = {}  # each with its size
        self._count = 0
        self._bytes = 0
        self._added = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = asyncio.Event()
        self._aside = QueuePatience("reporting outcomes", log, time.monotonic)

    def is_stuck(self, queue: str) -> bool:
        """True while the queue's own keys keep its reports from being accepted."""
        return self._aside.failing(queue)

    @property
    def full(self) -> bool:
        """True while so much waits that no new task should be taken."""
        return self._count >= WAITING_MAX or self._bytes >= WAITING_BYTES_MAX

    def report(self, entry: Entry, outcome: Outcome, started_ms: float, finished_ms: float) -> None:
        """Report the outcome of `entry` and give the entry back. Times: ms since the epoch."""
        words = words_of(entry, outcome, self._worker_id, started_ms, finished_ms)
        size = _SIZE + len(outcome.body or b"")
        self._add(entry.queue, (entry.entry_id, words), size)

    def drop(self, queue: str, entry_id: bytes) -> None:
        """Give an entry back without a report: nobody waits for its outcome."""
        self._add(queue, (entry_id, []), 0)

    def entries(self) -> set[tuple[str, bytes]]:
        """Return (queue, entry id) of all that waits."""
        return {(queue, item[0]) for queue, items in self._waiting.items() for item, _ in items}

    async def run(self) -> None:
        """Send what is added until `close`."""
        patience = Patience("reporting outcomes", log)
        while not self._closing.is_set():
            await self._added.wait()
            if not self._waiting:
                self._added.clear()
                continue
            queue = next((q for q in self._waiting if not self._aside.pause_s(q)), None)
            if queue is None:
                self._added.clear()
                await wait_for(self._added, min(map(self._aside.pause_s, self._waiting)))
                self._added.set()
                continue
            batch = self._head(queue)
            try:
                await self._conveyor.report(queue, batch)
            except TROUBLE as error:
                self._waiting[queue] = self._waiting.pop(queue)  # the other queues' turn
                if is_of_one_queue(error):
                    self._aside.failed(queue, error)
                else:
                    await wait_for(self._closing, patience.failed(error))
            else:
                patience.worked()
                self._aside.worked(queue)
                self._accepted(queue, batch)

    async def flush(self, timeout_s: float) -> int:
        """Wait up to `timeout_s` until all is accepted; return how many reports are left."""
        await wait_for(self._empty, timeout_s)
        return self._count

    def close(self) -> None:
        """End `run` after the call that is under way."""
        self._closing.set()
        self._added.set()

    def _add(self, queue: str, item: Item, size: int) -> None:
        items = self._waiting.get(queue)
        if items is None:
            items = self._waiting[queue] = deque()
        items.append((item, size))
        self._count += 1
        self._bytes += size
        self._empty.clear()
        self._added.set()

    def _head(self, queue: str) -> list[Item]:
        """Return the queue's oldest items, up to one call's worth; they stay until accepted."""
        batch: list[Item] = []
        size = 0
        for item, its_size in islice(self._waiting[queue], BATCH_MAX):
            batch.append(item)
            size += its_size
            if size >= BATCH_BYTES_MAX:
                break
        return batch

    def _accepted(self, queue: str, batch: list[Item]) -> None:
        items = self._waiting.pop(queue)
        for _ in batch:
            self._bytes -= items.popleft()[1]
        if items:
            self._waiting[queue] = items  # behind the other queues
        self._count -= len(batch)
        if not self._count:
            self._empty.set()
        self._on_progress()


def words_of(
    entry: Entry, outcome: Outcome, worker_id: str, started_ms: float, finished_ms: float
) -> list[str]:
    """The fields of a report, name and value in turns."""
    words = [
        "id", entry.id, "token", str(entry.token), "outcome", outcome.kind, "worker", worker_id,
        "started", f"{started_ms:.3f}", "finished", f"{finished_ms:.3f}",
    ]  # fmt: skip
    if outcome.body is not None:
        words += ("result" if outcome.kind == "completed" else "error", outcome.body.decode())
    if outcome.retry is not None:
        words += ("retry", "1" if outcome.retry else "0")
    if outcome.delay_s is not None:
        words += ("delay", f"{outcome.delay_s:.6f}".rstrip("0").rstrip("."))
    return words
