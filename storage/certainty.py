"""What became of a write whose answer was lost: found out, instead of handed on as a doubt."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError

T = TypeVar("T")

_WITHIN_S = 9.0  # of the attempt's beginning: whoever asked is answered within 10 s
_PAUSE_S = 0.2


async def certain(attempt: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]]) -> T:
    """What `attempt()` answers; if it ends in doubt, what `again()` does.

    `again` looks first whether the attempt was carried out, which is decided by then: its session is
    gone. Raises `StoreUnavailableError`, in doubt, if that takes too long.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + _WITHIN_S
    try:
        return await attempt()
    except StoreUnavailableError as error:
        if not error.in_doubt:
            raise
        doubt = error
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):  # a statement under way goes on by itself
            while True:
                try:
                    await doubt.settled(_WITHIN_S)
                    return await again()
                except StoreUnavailableError as error:
                    if error.in_doubt:
                        doubt = error
                await asyncio.sleep(_PAUSE_S)
    raise doubt


async def read_back(db: Database, name: str, *args: Any) -> list[Any]:
    """Rows that a standby has too, if commits wait for one: so that they may be vouched for.

    What is read may have been committed without waiting. A write after it waits for both.
    """
    look, write = Database.sql(name), Database.sql("try_write")

    async def work(connection: Any) -> list[Any]:
        async with connection.transaction():
            rows: list[Any] = await connection.fetch(look, *args)
            await connection.fetch(write)
            return rows

    return await db.run(work, name)
