"""A list that comes in pages."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from duly.nodes.exact_json import ExactDecoder

T = TypeVar("T")

PAGE_SIZE: Final = 100
"""Items asked for at once."""

Fetch = Callable[[str | None, int], Awaitable[tuple[list[T], str | None]]]
"""Fetch the page after a cursor (None: the first), of so many items: the items, the next cursor."""

Send = Callable[..., Awaitable[bytes]]
"""Send a request: method, path, perhaps body, `query`, `headers`, `repeatable`; returns what is answered."""


class Items(msgspec.Struct, Generic[T]):
    """One page as the API answers it."""

    items: list[T]
    next_cursor: str | None = None


class Pages(Generic[T]):
    """Items of a list, fetched page by page as they are needed; each object is used once.

    `async for item in pages` takes them one by one, `await pages` all of them as a list.
    """

    def __init__(self, fetch: Fetch[T], limit: int | None = None) -> None:
        """`limit`: most items in all; None for no limit. Raises ValueError if it is negative."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit is 0 or more, not {limit}")
        self._fetch = fetch
        self._left = limit
        self._cursor: str | None = None
        self._ended = limit == 0

    async def next_page(self) -> list[T]:
        """Return the next items; an empty list is the end."""
        while not self._ended:
            size = PAGE_SIZE if self._left is None else min(PAGE_SIZE, self._left)
            items, self._cursor = await self._fetch(self._cursor, size)
            if self._left is not None:
                items = items[: self._left]
                self._left -= len(items)
            self._ended = self._cursor is None or self._left == 0
            if items:
                return items
        return []

    async def __aiter__(self) -> AsyncIterator[T]:
        while page := await self.next_page():
            for item in page:
                yield item

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    async def _all(self) -> list[T]:
        return [item async for item in self]


def listed(
    send: Send,
    path: str,
    where: Mapping[str, str | None],
    answer: ExactDecoder[Items[T]],
    limit: int | None,
    each: Callable[[T], T] | None = None,
) -> Pages[T]:
    """The list at `path`, filtered by `where`, at most `limit` in all; `each`: what is made of an item."""

    async def fetch(cursor: str | None, size: int) -> tuple[list[T], str | None]:
        query = {**where, "cursor": cursor, "limit": str(size)}
        page = answer.decode(await send("GET", path, query=query))
        return [*map(each, page.items)] if each else page.items, page.next_cursor

    return Pages(fetch, limit)
