"""Pages of tasks by a filter, newest first by id, in bounded time in a store of any size.

Tasks are in two tables: unfinished, and finished. Of each, one way after another is tried to find a
page's worth, the one that is likely the quickest first; each reads a bounded number of rows. Those that wait
and those that run are searched apart if a queue or a type is asked for. What all of them together may leave unread is below `bound`: as long as there is time the search goes on from there, and
a page ends there at the latest, also if it is short or even empty, and the next one goes on from it.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from duly.storage.database import Database
from duly.storage.tasks import TaskRow

_HIGHEST = UUID(int=(1 << 128) - 1)
_LEAST = UUID(int=0)
_FINISHED = ("completed", "failed", "cancelled")


_SEARCH_S = 0.01
"""After so long no further rows are looked at for a page."""

_TOO_MANY_S = {
    "list_tasks_tagged": 60.0,
    "list_finished_tagged": 60.0,
    "list_tasks_running": 5.0,
}
"""So long a way is left out that has found too many: of a tag, or of all that run."""

_too_many: WeakKeyDictionary[Database, dict[tuple[str, str], float]] = WeakKeyDictionary()
"""Ways that gave up, with the tag, and until when (monotonic) they are left out; the last thousand of a database."""

_EVERYTHING = ("list_tasks", "list_finished")


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
    name: str | None = None


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
    too_many = _too_many.setdefault(db, {})
    searches = [
        _Search(ways, highest, where.tag, too_many, (least, limit + 1, *part[1:], payloads))
        for part, ways in _ways(where, finished=finished)
    ]

    async def work(connection: Any) -> UUID | None:
        return await _fill(connection, searches, limit)

    # One snapshot for all: a task that moves from one to another is seen once.
    bound = await db.snapshot(work, "list", by_index=True)
    known = _known(searches, bound)
    return Page(known, bound) if len(known) <= limit else Page(known[:limit], known[limit - 1].id)


class _Search:
    """The newest matches of one table, or of one status in it, as far as they are known."""

    def __init__(
        self,
        ways: list[str],
        highest: UUID,
        tag: str | None,
        too_many: dict[tuple[str, str], float],
        more: tuple[Any, ...],
    ) -> None:
        self._ways = ways
        self._tag = tag or ""
        self._too_many = too_many
        self._from = highest
        self._more = more
        self.rows: list[TaskRow] = []
        self.bound: UUID | None = highest
        """From here on down there may be more than these; None: there is not."""

    async def go_on(self, connection: Any) -> bool:
        """By the first way that leaves nothing unread, else the one that gets furthest; False: by none."""
        best, by = _Found([], self._from), None
        for way in self._ways:
            if way in _EVERYTHING and by is not None:
                break  # what it reads is more, and further from what is asked for
            found = await self._find(connection, way)
            if found.bound is None or (best.bound is not None and found.bound < best.bound):
                best, by = found, way
            if best.bound is None:
                break
        if by is None:
            return False
        self._ways = [by]
        self.bound = best.bound
        # What is below the bound, of one range of several, is found once more from there on.
        self.rows += [row for row in best.rows if self.bound is None or row.id >= self.bound]
        if self.bound is not None and self.bound != _LEAST:
            self._from = UUID(int=self.bound.int - 1)
        return True

    async def _find(self, connection: Any, way: str) -> _Found:
        what = way, "" if way == "list_tasks_running" else self._tag
        if self._too_many.get(what, 0.0) > time.monotonic():
            return _Found([], self._from)
        found = await connection.fetch(Database.sql(way), self._from, *self._more)
        bound = found[0]["bound"]
        if way in _TOO_MANY_S and bound == self._from:
            self._note_too_many(what)
        return _Found([TaskRow(*row[1:]) for row in found if row["id"] is not None], bound)

    def _note_too_many(self, what: tuple[str, str]) -> None:
        self._too_many.pop(what, None)
        self._too_many[what] = time.monotonic() + _TOO_MANY_S[what[0]]
        if len(self._too_many) > 1000:
            del self._too_many[next(iter(self._too_many))]


async def _fill(connection: Any, searches: list[_Search], limit: int) -> UUID | None:
    """Search until a page is full, nothing is left, or it has taken long enough; what is unread is below."""
    until = time.monotonic() + _SEARCH_S
    for one in searches:
        await one.go_on(connection)
    while unread := [(one.bound, one) for one in searches if one.bound is not None]:
        bound, search = max(unread, key=lambda pair: pair[0])
        if bound == _LEAST or len(_known(searches, bound)) > limit or time.monotonic() >= until:
            return bound
        if not await search.go_on(connection):
            return bound
    return None


def _known(searches: list[_Search], bound: UUID | None) -> list[TaskRow]:
    rows = (row for one in searches for row in one.rows if bound is None or row.id >= bound)
    return sorted(rows, key=lambda row: row.id, reverse=True)


def _ways(where: Filter, *, finished: bool) -> Iterator[tuple[Filter, list[str]]]:
    """The statements that may find what fits, and their filter: no task fits two of these."""
    is_due = where.due_before is not None or where.due_after is not None
    if where.status not in _FINISHED:
        for part in _apart(where):
            rare = ["_paused"] if where.paused else []
            rare += ["_running"] if part.status == "running" else []
            yield part, _in_order("list_tasks", part, rare, ["_due"] if is_due else [])
    is_over = where.status not in ("pending", "running") and not is_due and not where.paused
    if finished and is_over:
        everywhere = where.queue is None and where.type is None
        is_rare = where.status in ("failed", "cancelled") and everywhere
        yield where, _in_order("list_finished", where, ["_of_status"] if is_rare else [], [])


def _apart(where: Filter) -> list[Filter]:
    """Unfinished tasks of a queue or a type by status: the index that finds them has those that wait alone."""
    everywhere = where.queue is None and where.type is None
    if everywhere or where.status is not None or where.id is not None or where.name is not None:
        return [where]
    return [where._replace(status=status) for status in ("pending", "running")]


def _in_order(table: str, where: Filter, rare: list[str], more: list[str]) -> list[str]:
    """All ways of one table: first what is rare, or all if nothing is; last what may be too much."""
    if where.id is not None:
        return [table]
    if where.name is not None:
        return [table + "_named"]
    ways = [*rare, *(["_periodic"] if where.periodic else []), *_by_kind(where)]
    # Whether a tag is rare is not known before; a frequent one is soon found without its index.
    ways = [*(ways or [""]), *(["_tagged"] if where.tag is not None else []), *more, ""]
    return list(dict.fromkeys(table + way for way in ways))


def _by_kind(where: Filter) -> list[str]:
    """By the indexes of queue and type; those that run are not in one: they are few, and each claim would write to it."""
    if where.status == "running":
        return []
    if where.queue is not None:
        return ["_of_queue" if where.type is None else "_of_pair"]
    return [] if where.type is None else ["_of_type"]
