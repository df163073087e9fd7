"""Lists of all stores: a page of each, merged in the list's order, and cut to one page.

Of a task that is on its way to another store, or has come from there, each store may have rows: those of the store
that holds its slot count. A store that does not answer makes the whole list 503: a part of it would look like all of it.
"""

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from duly.actors.context import Context
from duly.nodes.api.alerts import AlertHandlers
from duly.nodes.api.audits import AuditHandlers
from duly.nodes.api.cluster import ClusterHandlers
from duly.nodes.api.ledger import LedgerHandlers
from duly.nodes.api.load import LoadHandlers
from duly.nodes.api.problems import FieldError, invalid
from duly.nodes.api.stores.routing import Stores
from duly.nodes.api.tasks import TaskHandlers
from duly.storage import alerts, audit, ledger, listing, tasks
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.layout import slot_of, slot_of_key
from duly.storage.ledger import Entry, Place
from duly.storage.listing import Filter, Page
from duly.storage.load import NAMES_MAX, By, Load, Series, due_load
from duly.storage.slots import Holding, slot_map
from duly.storage.tasks import Change, TaskRow

T = TypeVar("T")


async def of_each(stores: Stores, ask: Callable[[Context], Awaitable[T]]) -> list[T]:
    """The answers of all stores. Raises StoreUnavailableError that names one that gives none."""
    answers = await asyncio.gather(*map(ask, stores.contexts), return_exceptions=True)
    found: list[T] = []
    for name, answer in zip(stores.layout.names, answers, strict=True):
        if isinstance(answer, StoreUnavailableError):
            raise StoreUnavailableError(f"{name}: {answer}") from answer
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


async def rows_of_each(
    stores: Stores,
    ask: Callable[[Database], Awaitable[Sequence[T]]],
    order: Callable[[T], Any],
    limit: int,
) -> builtins.list[T]:
    """The first `limit` rows of all stores by `order`, the highest first."""
    pages = await of_each(stores, lambda context: ask(context.api_db))
    return sorted((row for page in pages for row in page), key=order, reverse=True)[:limit]


def merged(
    pages: Sequence[tuple[Sequence[T], Any]], order: Callable[[T], Any], limit: int
) -> tuple[builtins.list[T], Any]:
    """One page of several, each with the place after which it goes on, or None at its end.

    What is behind the first place at which a page ends is left for the next one: others of that page may
    come before it.
    """
    bounds = [bound for _, bound in pages if bound is not None]
    frontier = max(bounds, default=None)
    rows = [row for page, _ in pages for row in page]
    if frontier is not None:
        rows = [row for row in rows if order(row) >= frontier]
    rows.sort(key=order, reverse=True)
    if len(rows) > limit:
        return rows[:limit], order(rows[limit - 1])
    return rows, frontier


class StoresTaskHandlers(TaskHandlers):
    """Tasks of one of several stores; the list is of all."""

    def __init__(self, stores: Stores, context: Context, payload_limit: int) -> None:
        super().__init__(context, payload_limit)
        self._stores = stores

    async def _page(self, where: Filter, after: UUID | None, limit: int) -> Page:
        return await page(self._stores, where, after, limit)

    async def _named(self, name: str) -> dict[str, TaskRow]:
        store = self._stores.of_slot(slot_of_key(name))
        return await tasks.named(self._stores.contexts[store].api_db, [name])

    def _check(self, task_id: UUID, wanted: Change) -> None:
        key = wanted.concurrency_key
        if key is not None and slot_of_key(key) != slot_of(task_id):
            message = (
                "cannot be given to a task that was stored without it: it may be of another store"
            )
            raise invalid(FieldError("concurrency_key", message))


async def page(
    stores: Stores, where: Filter, after: UUID | None, limit: int, *, finished: bool = True
) -> Page:
    """As `listing.page`, of all stores."""

    async def ask(context: Context) -> tuple[Sequence[Any], UUID | None]:
        found = await listing.page(context.api_db, where, after, limit, finished=finished)
        return [row for row in found.items if context.holds(row.id)], found.after

    return Page(*merged(await of_each(stores, ask), lambda row: row.id, limit))


class StoresLedgerHandlers(LedgerHandlers):
    """The ledger of one of several stores; the list is of all."""

    def __init__(self, stores: Stores, context: Context) -> None:
        super().__init__(context)
        self._stores = stores

    async def _entries(
        self, where: ledger.Filter, after: Place, limit: int
    ) -> tuple[builtins.list[Entry], Place | None]:
        async def ask(context: Context) -> tuple[Sequence[Entry], Place | None]:
            found, place = await ledger.entries(context.api_db, where, after, limit)
            return [one for one in found if context.holds(one.task_id)], place

        def order(entry: Entry) -> Place:
            return Place(entry.recorded_at, entry.task_id, entry.token)

        return merged(await of_each(self._stores, ask), order, limit)


class StoresAuditHandlers(AuditHandlers):
    """The notes of all stores: each is with what it tells of."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._stores = stores

    async def _notes(
        self, where: audit.Filter, after: tuple[datetime, int] | None, limit: int
    ) -> builtins.list[audit.Noted]:
        return await rows_of_each(
            self._stores,
            lambda db: audit.notes(db, where, after, limit),
            lambda note: (note.at, note.id),
            limit,
        )


class StoresAlertHandlers(AlertHandlers):
    """The alerts of all stores."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._stores = stores

    async def _rows(
        self, where: alerts.Filter, before: int | None, limit: int
    ) -> builtins.list[alerts.Alert]:
        return await rows_of_each(
            self._stores,
            lambda db: alerts.listing(db, where, before, limit),
            lambda alert: alert.id,
            limit,
        )


class StoresClusterHandlers(ClusterHandlers):
    """The slots of all stores; one that moves is in none."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._stores = stores

    async def _held(self) -> builtins.list[Holding]:
        pages = await of_each(self._stores, lambda context: slot_map(context.api_db))
        return sorted(slot for page in pages for slot in page)


class StoresLoadHandlers(LoadHandlers):
    """What comes due in all stores."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.contexts[0])
        self._stores = stores

    async def _count(self, by: By, since: datetime, minutes: int) -> Load:
        async def ask(context: Context) -> Load:
            return await due_load(context.api_db, by, since, minutes, sorted(context.slots))

        found = await of_each(self._stores, ask)
        sums: dict[str | None, list[int]] = {}
        for series in (one for load in found for one in load.series):
            known = sums.setdefault(series.name, [0] * minutes)
            sums[series.name] = [a + b for a, b in zip(known, series.counts, strict=True)]
        named = sorted(
            (Series(name, counts) for name, counts in sums.items() if name is not None),
            key=lambda one: -sum(one.counts),
        )
        rest = [one.counts for one in named[NAMES_MAX:]]
        rest += [sums[None]] if None in sums else []
        shown = named[:NAMES_MAX]
        if rest:
            shown.append(Series(None, [sum(column) for column in zip(*rest, strict=True)]))
        return Load(shown, min(load.sampled for load in found))
