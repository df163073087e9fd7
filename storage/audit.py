"""Who changed what: a row in the transaction of each change that a client makes to what is stored."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.database import Database


class Note(NamedTuple):
    """What is written of a change. `details` is JSON text."""

    who: str | None
    """The name of the token; None on a node without tokens."""
    role: str
    action: str
    details: str | None = None


class Noted(NamedTuple):
    """A note as it was written, on the cluster's clock. `id` orders those of one instant."""

    at: datetime
    id: int
    who: str | None
    role: str
    action: str
    task_id: UUID | None
    """None: a change that is not one of a task."""
    details: str | None


class Filter(NamedTuple):
    """Which notes are asked for; None = any."""

    who: str | None = None
    action: str | None = None
    task_id: UUID | None = None
    before: datetime | None = None
    since: datetime | None = None


async def change(
    db: Database,
    note: Note | None,
    name: str,
    task_id: UUID | None,
    now: datetime,
    *args: Any,
) -> list[Any]:
    """Run the statement called `name` and, if it has changed anything, note it in the same transaction.

    Without a note the statement runs by itself. Its rows say whether it has changed anything: none, or
    one whose `was_changed` is false.
    """
    if note is None:
        return await db.fetch(name, *args)

    async def work(connection: Any) -> list[Any]:
        async with connection.transaction():
            rows: list[Any] = await connection.fetch(Database.sql(name), *args)
            if rows and rows[0].get("was_changed", True):
                who, role, action, details = note
                written = (now, who, role, action, task_id, details)
                await connection.fetch(Database.sql("note"), *written)
            return rows

    return await db.run(work, name)


async def notes(
    db: Database, where: Filter, after: tuple[datetime, int] | None, limit: int
) -> list[Noted]:
    """Newest first, after (older than) the note at (`at`, `id`)."""
    rows = await db.fetch("notes", *where, *(after or (None, None)), limit)
    return [Noted(*row) for row in rows]
