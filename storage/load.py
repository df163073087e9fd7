"""How many tasks come due in each minute: counted in a store of any size, in bounded time.

Every task is in one of the slots by a hash of its id, so that a few slots, or a part of one, are a fair
sample of all.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from duly.storage.database import Database
from duly.storage.slots import SLOTS

By = Literal["queue", "type"]

NAMES_MAX: Final = 20
"""Names that have counts of their own."""

_COUNTED_MAX: Final[dict[By, int]] = {"queue": 40_000, "type": 2_500}
"""Tasks that are counted, about. The index of due times knows the queues; a type is looked up."""

_PROBE_MAX = 10_000
_PARTS = 256  # of a slot, by another hash


class Series(NamedTuple):
    """The tasks due in each minute under one name; None: under all the names that are not shown."""

    name: str | None
    counts: list[int]


class Load(NamedTuple):
    """`sampled`: the share of the tasks that was looked at; below 1 the counts are estimates."""

    series: list[Series]
    sampled: float


async def due_load(
    db: Database, by: By, since: datetime, minutes: int, slots: Sequence[int] = range(SLOTS)
) -> Load:
    """Pending tasks, not paused, due in each of so many minutes from `since`; most frequent name first.

    Of a periodic task it is the next occurrence. `slots`: those that the store holds.
    """
    if not slots:
        return Load([], 1.0)
    until = since + timedelta(minutes=minutes)
    in_a_slot = await _in_a_slot(db, slots[0], since, until)
    count = min(len(slots), max(1, round(_COUNTED_MAX[by] / in_a_slot)))
    part = min(_PARTS, max(1, round(_COUNTED_MAX[by] / in_a_slot / count * _PARTS)))
    share = count / len(slots) * part / _PARTS
    rows = await db.fetch(f"load_by_{by}", list(slots[:count]), since, until, NAMES_MAX, part)
    series = []
    for name, at, found in rows:
        counts = [0] * minutes
        for minute, count in zip(at, found, strict=True):
            counts[minute] = round(count / share)
        series.append(Series(name, counts))
    return Load(series, share)


async def _in_a_slot(db: Database, slot: int, since: datetime, until: datetime) -> float:
    """About how many tasks of one slot are due; what follows the first thousands is taken to be as dense."""
    counted, last = (await db.fetch("due_in_slot", slot, since, until, _PROBE_MAX))[0]
    if counted < _PROBE_MAX:
        return max(1.0, float(counted))
    share = max(last - since, timedelta(minutes=1)) / (until - since)
    return float(counted / share)
