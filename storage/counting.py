"""How many tasks there are: exact while the store is small, else estimated within a set time.

A slot is a byte of a hash of the id, so any set of slots is a random sample of the tasks. Slots are
counted in random order, a few first to see how long they take, then as many as fit into the time, but at
least as many as hold `LEAST` tasks: a small store is counted whole however slow the machine is. Of n tasks
counted the estimate is off by about 1/sqrt(n): with ten thousand by 1 %. A queue with a handful of tasks may
be missing in an estimate.
"""

import math
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from duly.storage.database import Database
from duly.storage.slots import SLOTS

T = TypeVar("T")

FINISHED_BYTES = 16 * 1024 * 1024
"""So much of the finished tasks is read at most to estimate how many there are."""

LEAST = 20_000
"""So many tasks are counted, if there are as many, whatever time it takes: some 10 ms of PostgreSQL's processor."""

_FIRST = 4  # slots


class Depth(NamedTuple):
    """Of one queue. `pending` includes `paused`; `due`: pending, not paused and due."""

    pending: int
    due: int
    paused: int
    running: int


class Counts(NamedTuple):
    """`exact` is false if either part is an estimate. `finished`: by status."""

    queues: dict[str, Depth]
    finished: dict[str, int]
    exact: bool


async def due(
    db: Database,
    slots: Sequence[int],
    now: datetime,
    limit_s: float,
    monotonic: Callable[[], float],
) -> int:
    """How many tasks of these slots are due at `now` and not claimed; in about `limit_s`."""

    async def ask(some: list[int]) -> int:
        return int((await db.fetch("count_due", some, now))[0]["tasks"])

    found, share = await _sample(ask, int, slots, limit_s, monotonic)
    return round(sum(found) / share)


async def counts(
    db: Database,
    now: datetime,
    limit_s: float,
    monotonic: Callable[[], float],
    slots: Sequence[int] = range(SLOTS),
) -> Counts:
    """All tasks, by queue and by status; in about `limit_s`, and a look at the finished ones.

    `slots`: those that the store holds.
    """

    async def ask(some: list[int]) -> list[tuple[str, Depth]]:
        rows = await db.fetch("count_tasks", some, now)
        return [(queue, Depth(*numbers)) for queue, *numbers in rows]

    def size(page: list[tuple[str, Depth]]) -> int:
        return sum(depth.pending + depth.running for _, depth in page)

    found, share = await _sample(ask, size, slots, limit_s, monotonic)
    sums: dict[str, list[int]] = {}
    for queue, depth in (pair for page in found for pair in page):
        known = sums.setdefault(queue, [0] * len(depth))
        for at, number in enumerate(depth):
            known[at] += number
    queues = {
        queue: Depth(*(round(number / share) for number in numbers))
        for queue, numbers in sums.items()
    }
    finished, whole = await _finished(db)
    return Counts(queues, finished, whole and share == 1)


async def _finished(db: Database) -> tuple[dict[str, int], bool]:
    """By status; and whether all were counted."""
    size = (await db.fetch("table_bytes", "finished_tasks"))[0]["bytes"]
    percent = 100.0 if size <= FINISHED_BYTES else 100.0 * FINISHED_BYTES / size
    rows = await db.fetch("count_finished", percent)
    return {row["status"]: round(row["tasks"] * 100 / percent) for row in rows}, percent == 100


async def _sample(
    ask: Callable[[list[int]], Awaitable[T]],
    size: Callable[[T], int],
    slots: Sequence[int],
    limit_s: float,
    monotonic: Callable[[], float],
) -> tuple[list[T], float]:
    """The answers about random slots; and the share of the slots that they are about.

    `size`: how many tasks an answer counts.
    """
    left = random.sample(slots, len(slots))
    found: list[T] = []
    count, tasks, began = _FIRST, 0, monotonic()
    while left:
        some, left = left[:count], left[count:]
        answer = await ask(some)
        found.append(answer)
        tasks += size(answer)
        spent_s = monotonic() - began
        if spent_s >= limit_s and tasks >= LEAST:
            break
        done = len(slots) - len(left)
        in_time = int((limit_s - spent_s) * done / spent_s) if spent_s else len(slots)
        for_least = math.ceil((LEAST - tasks) * done / tasks) if tasks else len(slots)
        count = max(1, in_time, for_least)
    return found, (1 - len(left) / len(slots)) if slots else 1.0
