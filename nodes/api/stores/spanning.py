"""Inserts into several stores as if they were one: a transaction in each, and none commits before all have taken their part in.

The transactions are begun in the order of the stores and committed in the opposite one, so that two batches that
need the same rows wait for each other in one store, where PostgreSQL sees it. What is refused is refused before
anything is committed. Only a store that breaks off between its insert and its commit leaves a part of a batch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.errors import StoreUnavailableError
from duly.storage.submitting import NewTask, Rejected, Submitted

Also = Callable[[Any], Awaitable[object]]
"""Carried out within a transaction, just before its commit; perhaps a second time."""

Insert = Callable[[int, list[NewTask], Also | None], Awaitable[list[Submitted]]]
"""Insert all or none into the store of this number; see `submitting.submit_all`."""


def commits_last(stores: Iterable[int]) -> int:
    """The one of these stores whose part of a batch is committed last."""
    return min(stores)


class Part(NamedTuple):
    """What goes into one store."""

    store: int
    tasks: list[NewTask]


class PartlyStoredError(Exception):
    """Some stores have committed their part, and another one has not, or it is not known whether it has."""

    def __init__(self, kept: dict[UUID, Submitted], error: Exception) -> None:
        super().__init__(str(error))
        self.kept = kept


class _OtherStoreError(Exception):
    """Passes through the transaction of a store what is no trouble of its own."""

    def __init__(self, error: StoreUnavailableError) -> None:
        super().__init__(str(error))
        self.error = error


class Spanning:
    """One batch."""

    def __init__(self, insert: Insert, also: Also | None = None) -> None:
        """`also` is part of the last commit."""
        self._insert = insert
        self._also = also
        self.kept: dict[UUID, Submitted] = {}
        """What has been committed, by the ids that were asked for."""

    async def take_in(self, parts: Sequence[Part]) -> None:
        """Insert these parts: all, or none.

        Raises as `submit_all` does. `kept` has grown then only if a store broke off at its commit.
        """
        try:
            await self._take_in(sorted(parts, key=lambda part: part.store), self._also)
        except _OtherStoreError as other:
            raise other.error from other

    async def _take_in(self, parts: Sequence[Part], also: Also | None) -> None:
        part, *rest = parts
        turn = asyncio.Lock()
        reached = False

        async def before_commit(connection: Any) -> None:
            nonlocal reached
            reached = True
            # To its end, should this store break off meanwhile: what the others commit is to be known.
            await asyncio.shield(self._others(rest, turn))
            if also is not None:
                await also(connection)

        try:
            done = await self._insert(
                part.store, part.tasks, before_commit if rest or also else None
            )
        except Rejected as rejected:
            if reached:
                raise
            raise Rejected([*rejected.answers, *await self._rejected(rest)]) from None
        self.kept.update((one.id, one) for one in done)

    async def _others(self, parts: Sequence[Part], turn: asyncio.Lock) -> None:
        async with turn:  # a first attempt may be at it still, though its own store is gone
            left = [one for one in parts if one.tasks[0].id not in self.kept]
            if not left:
                return
            try:
                await self._take_in(left, None)
            except StoreUnavailableError as error:
                raise _OtherStoreError(error) from error

    async def _rejected(self, parts: Sequence[Part]) -> list[Submitted]:
        """What else is refused, so that all of it can be told; nothing is kept."""

        async def nothing(_: object) -> None:
            raise Rejected([])

        answers: list[Submitted] = []
        for part in parts:
            try:
                await self._insert(part.store, part.tasks, nothing)
            except Rejected as rejected:
                answers += rejected.answers
        return answers
