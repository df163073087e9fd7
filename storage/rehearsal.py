"""The statements of the firing path, run on nothing, so that their connections are open and know them."""

import asyncio
from datetime import datetime
from typing import Any

from duly.storage.database import Database


async def rehearse(db: Database, times: int, now: datetime) -> None:
    """Claim and complete no task, `times` at once: each on a connection of its own, if there is room for as many.

    Raises a group of `StoreUnavailableError`.
    """
    none: list[Any] = []

    async def once() -> None:
        await db.fetch("claim", none, none, "", none, none, now, 0)
        await db.fetch("complete", none, none, none, none, none, none, now)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(times):
            tasks.create_task(once())
