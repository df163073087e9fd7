"""The end of a fence of slots that move: the slots are in one of the two stores afterwards.

A fence has a name. The old store says how far it is, and changes that only for the fence that was meant. Whether the
slots were handed over is decided in the new store, by whoever writes first: the mover, that it took them, or
whoever takes the fence back. So a mover that stood still, and goes on, can hand nothing over any more.
"""

from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.database import Database

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


async def settle(source: Database, target: Database, fence: Fence) -> bool:
    """End it; returns whether the other store has the slots. Only if that may be, the other store is asked.

    Raises `StoreUnavailableError`, also if somebody has the tasks locked just now.
    """
    if fence.state == "handing":
        (row,) = await target.fetch("fence_decide", fence.fence)
        if row["taken"]:
            await source.fetch("move_moved", fence.slots, fence.fence)
            return True

    async def take_back(connection: Any) -> None:
        async with connection.transaction():
            await connection.fetchval(Database.sql("move_lock_limit"), f"{_LOCK_MS}ms")
            sql = Database.sql("move_unfence")
            await connection.fetchval(sql, fence.slots, fence.state, fence.fence)

    await source.run(take_back, "move_unfence")
    return False
