"""How many tasks there are: exact while the store is small, else estimated within a set time.

A slot is a byte of a hash of the id, so any set of slots is a random sample of the tasks. Slots are
counted in random order, a few first to see how long they take, then as many as fit into the time. Of n
tasks counted the estimate is off by about 1/sqrt(n): with ten thousand by 1 %. A queue with a handful of
tasks may be missing in an estimate.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from duly.storage.database import Database
from duly.storage.slots import SLOTS

T = TypeVar("T")

FINISHED_BYTES = 16 * 1024 * 1024
"""So much of the finished tasks is read at most to estimate how many there are."""

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

    found, share = await _sample(ask, slots, limit_s, monotonic)
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

    found, share = await _sample(ask, slots, limit_s, monotonic)
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
    slots: Sequence[int],
    limit_s: float,
    monotonic: Callable[[], float],
) -> tuple[list[T], float]:
    """The answers about random slots; and the share of the slots that they are about."""
    left = random.sample(slots, len(slots))
    found: list[T] = []
    count, began = _FIRST, monotonic()
    while left:
        some, left = left[:count], left[count:]
        found.append(await ask(some))
        spent_s = monotonic() - began
        each_s = spent_s / (len(slots) - len(left))
        if spent_s >= limit_s:
            break
        count = max(1, int((limit_s - spent_s) / each_s)) if each_s else len(slots)
    return found, (1 - len(left) / len(slots)) if slots else 1.0
