"""Tasks that wait until others have completed: what their submission writes, in its own transaction.

On the row of each that is waited for stands how many wait (`awaited`), and whoever ends it goes by that; so a
task that is submitted in the very moment in which the other one ends is either seen by it, or sees its end.
"""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from duly.storage.database import Database
from duly.storage.tasks import TaskRow

WAITING: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""`next_run_at` of a task that waits for others: no sweep looks so far."""

MOST: Final = 100
"""Tasks that one task may wait for."""


class CannotWaitError(Exception):
    """Tasks cannot wait for what they name: `reasons`, by the id that is named."""

    def __init__(self, reasons: dict[UUID, str]) -> None:
        super().__init__("; ".join(f"{one} {why}" for one, why in reasons.items()))
        self.reasons = reasons


class Free(NamedTuple):
    """A task that waits for nothing any more, and when it is due."""

    id: UUID
    due: datetime


async def begin(connection: Any, lists: Mapping[UUID, str]) -> list[Free]:
    """Have these tasks, inserted before, wait for those whose ids (JSON text) they name.

    Answers those that need not, because all that they name has completed. Raises `CannotWaitError`.
    """
    links = {(UUID(parent), task) for task, text in lists.items() for parent in json.loads(text)}
    numbers = Counter(parent for parent, _ in links)
    parents = sorted(numbers)
    counts = [numbers[parent] for parent in parents]
    rows = await connection.fetch(Database.sql("note_waits"), parents, counts)
    open_ = {row["id"] for row in rows}
    over = [parent for parent in parents if parent not in open_]
    done = await _completed(connection, over) if over else []
    left = [link for link in links if link[0] in open_]
    if left:
        await connection.fetch(
            Database.sql("add_waits"), [parent for parent, _ in left], [task for _, task in left]
        )
    if not done:
        return []
    rows = await connection.fetch(Database.sql("ended_before"), list(lists), done)
    return [Free(row["id"], row["next_run_at"]) for row in rows if row["waits_for"] is None]


async def _completed(connection: Any, over: list[UUID]) -> list[UUID]:
    """All of these, if they have completed. Raises `CannotWaitError`."""
    rows = await connection.fetch(Database.sql("ends_of"), over)
    ends = {row["id"]: row["status"] for row in rows}
    said = {
        "failed": "has failed",
        "cancelled": "was cancelled",
        None: "is periodic, and has no end",
    }
    reasons = {
        one: said[ends[one]] if one in ends else "is no task that there is, or is kept any more"
        for one in over
        if ends.get(one) != "completed"
    }
    if reasons:
        raise CannotWaitError(reasons)
    return over


async def waiting(db: Database, parent: UUID, after: UUID | None, limit: int) -> list[TaskRow]:
    """The tasks that wait for one, newest first by id, older than the id `after`."""
    return [TaskRow(*row) for row in await db.fetch("waiting", parent, after, limit)]
