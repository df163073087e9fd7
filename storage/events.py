"""What events tell of their tasks."""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from duly.storage.database import Database


class Facts(NamedTuple):
    """What a task is and how it stands."""

    type: str
    queue: str
    status: str
    version: int
    retry_count: int


async def facts(db: Database, ids: Iterable[UUID]) -> dict[UUID, Facts]:
    """Of these tasks, finished or not; of one that is gone there are none."""
    rows = await db.fetch("event_facts", list(ids))
    return {row["id"]: Facts(*row[1:]) for row in rows}
