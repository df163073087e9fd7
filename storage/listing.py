"""Pages of tasks by a filter, newest first by id, in bounded time in a store of any size.

Tasks are in two tables: unfinished, and finished. Of each, one way after another is tried to find a
page's worth, the one that is likely the quickest first; each reads a bounded number of rows. What all of
them together may leave unread is below `bound`: a page ends there at the latest, also if it is short or
even empty, and the next one goes on from it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.database import Database
from duly.storage.tasks import TaskRow

_HIGHEST = UUID(int=(1 << 128) - 1)
_LEAST = UUID(int=0)
_FINISHED = ("completed", "failed", "cancelled")


class Filter(NamedTuple):
    """What a list asks for; None = any. `tag` is a JSON object of one member.

    `paused` is of unfinished tasks: what has finished counts as not paused.
    """

    id: UUID | None = None
    status: str | None = None
    type: str | None = None
    queue: str | None = None
    tag: str | None = None
    due_before: datetime | None = None
    due_after: datetime | None = None
    periodic: bool | None = None
    paused: bool | None = None


class Page(NamedTuple):
    """Tasks, and the id after which the list goes on; None: there is no more."""

    items: list[TaskRow]
    after: UUID | None


class _Found(NamedTuple):
    """The newest matches of one table. From `bound` on down there may be more than these; None: not."""

    rows: list[TaskRow]
    bound: UUID | None


async def page(
    db: Database,
    where: Filter,
    after: UUID | None,
    limit: int,
    *,
    finished: bool = True,
    payloads: bool = True,
) -> Page:
    """The newest tasks that fit, older than the id `after`, at most `limit`.

    With `after` in the answer there may be more, even if there are fewer than `limit`. Without `finished`
    only unfinished tasks; without `payloads` these and the results are left out.
    """
    if after == _LEAST:
        return Page([], None)
    highest = _HIGHEST if after is None else UUID(int=after.int - 1)
    least = _LEAST
    if where.id is not None:
        highest, least = min(highest, where.id), where.id
    if highest < least:
        return Page([], None)
    args = (highest, least, limit + 1, *where[1:], payloads)

    async def work(connection: Any) -> list[_Found]:
        # One snapshot for both tables: a task that moves from one to the other is seen once.
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetch(Database.sql("list_by_index"))
            return [
                await _search(connection, ways, args) for ways in _ways(where, finished=finished)
            ]

    found = await db.run(work, "list")
    bound = max((one.bound for one in found if one.bound is not None), default=None)
    rows = sorted((row for one in found for row in one.rows), key=lambda row: row.id, reverse=True)
    known = [row for row in rows if bound is None or row.id >= bound]
    return Page(known, bound) if len(known) <= limit else Page(known[:limit], known[limit - 1].id)


async def _search(connection: Any, ways: list[str], args: tuple[Any, ...]) -> _Found:
    """What the first of these statements finds that leaves nothing unread, else the one that got furthest."""
    best, lowest = _Found([], None), _HIGHEST
    for name in ways:
        found = await connection.fetch(Database.sql(name), *args)
        rows = [TaskRow(*row[1:]) for row in found if row["id"] is not None]
        bound: UUID | None = found[0]["bound"]
        if bound is None:
            return _Found(rows, None)
        if bound <= lowest:
            best, lowest = _Found(rows, bound), bound
    return best


def _ways(where: Filter, *, finished: bool) -> Iterator[list[str]]:
    """The statements that may find what fits, among the unfinished and among the finished tasks."""
    is_due = where.due_before is not None or where.due_after is not None
    if where.status not in _FINISHED:
        ordered = ["_paused"] if where.paused else []
        ordered += ["_running"] if where.status == "running" else []
        yield _in_order("list_tasks", where, ordered, ["_due"] if is_due else [])
    is_over = where.status not in ("pending", "running") and not is_due and not where.paused
    if finished and is_over:
        everywhere = where.queue is None and where.type is None
        rare = where.status in ("failed", "cancelled") and everywhere
        yield _in_order("list_finished", where, ["_of_status"] if rare else [], [])


def _in_order(table: str, where: Filter, rare: list[str], more: list[str]) -> list[str]:
    """All ways of one table: first what is rare, or all if nothing is; last what may be too much."""
    if where.id is not None:
        return [table]
    ways = [*rare, *(["_periodic"] if where.periodic else [])]
    if where.queue is not None and where.type is not None:
        ways.append("_of_pair")
    elif where.queue is not None:
        ways.append("_of_queue")
    elif where.type is not None:
        ways.append("_of_type")
    # Whether a tag is rare is not known before; a frequent one is soon found without its index.
    ways = [*(ways or [""]), *(["_tagged"] if where.tag is not None else []), *more, ""]
    return list(dict.fromkeys(table + way for way in ways))
