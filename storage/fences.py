"""The end of a fence of slots that move: the slots are in one of the two stores afterwards.

A fence has a name. The old store says how far it is, and changes that only for the fence that was meant. Whether the
slots were handed over is decided in the new store, by whoever writes first: the mover, that it took them, or
whoever takes the fence back. So a mover that stood still, and goes on, can hand nothing over any more.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError

_LOCK_MS = 1000


class Fence(NamedTuple):
    """Slots that nobody works on, and whose fence is over."""

    fence: UUID
    to: int
    state: str
    """`fenced`, or `handing`: the store `to` may hold them."""
    slots: list[int]


async def over(db: Database) -> list[Fence]:
    """Of slots that are on their way from this store."""
    return [Fence(*row) for row in await db.fetch("fences_over")]


async def settle(stores: Sequence[Database], source: int, fence: Fence) -> int | None:
    """End a fence over slots of the store `source`; return which of `stores` has them now.

    None: somebody else has gone on with the move meanwhile. Only a fence in the state `handing` needs its other store,
    which must be among `stores`. Raises `StoreUnavailableError`, also if somebody has the tasks locked just now; it names
    the store, unless it is `source`.
    """
    if fence.state == "handing":
        try:
            (row,) = await stores[fence.to].fetch("fence_decide", fence.fence)
        except StoreUnavailableError as error:
            raise StoreUnavailableError(f"store {fence.to}: {error}") from error
        if row["taken"]:
            await stores[source].fetch("move_moved", fence.slots, fence.fence)
            return fence.to

    async def take_back(connection: Any) -> bool:
        async with connection.transaction():
            await connection.fetchval(Database.sql("move_lock_limit"), f"{_LOCK_MS}ms")
            sql = Database.sql("move_unfence")
            await connection.fetchval(sql, fence.slots, fence.state, fence.fence)
            sql = Database.sql("fence_taken_back")
            back: bool = await connection.fetchval(sql, fence.slots, fence.fence)
            return back

    return source if await stores[source].run(take_back, "move_unfence") else None
