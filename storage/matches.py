"""How many tasks fit a filter: counted while they are few, estimated when they are many."""

import asyncio
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from duly.storage import listing
from duly.storage.database import Database
from duly.storage.listing import Filter

COUNTED_MAX: Final = 10_000
"""Up to about so many are counted."""

_WITHIN_S = 2.0
_PAGE = 1000
_SAMPLED_BYTES = 16 * 1024 * 1024  # of each table


class Matches(NamedTuple):
    """How many there are. `exact`: counted, not estimated."""

    total: int
    exact: bool


async def count(db: Database, where: Filter, until: datetime, *, finished: bool = True) -> Matches:
    """The tasks that fit and were made by `until`; without `finished` only unfinished ones."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + _WITHIN_S
    found, after = 0, None
    while found < COUNTED_MAX and clock() < deadline:
        page = await listing.page(db, where, after, _PAGE, finished=finished, payloads=False)
        found += sum(row.created_at <= until for row in page.items)
        after = page.after
        if after is None:
            return Matches(found, exact=True)
    estimate = await _sample(db, "tasks", where, until)
    if finished:
        estimate += await _sample(db, "finished_tasks", where, until)
    return Matches(max(found, round(estimate)), exact=False)


async def _sample(db: Database, table: str, where: Filter, until: datetime) -> float:
    size = int((await db.fetch("table_bytes", table))[0]["bytes"])
    share = min(1.0, _SAMPLED_BYTES / max(1, size))
    least, highest = UUID(int=0), UUID(int=(1 << 128) - 1)
    if where.id is not None:
        least = highest = where.id
    args: tuple[Any, ...] = (highest, least, until, *where[1:], 100 * share)
    name = "sample_tasks" if table == "tasks" else "sample_finished"
    found = int((await db.fetch(name, *args))[0]["found"])
    return found / share
