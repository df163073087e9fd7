"""Ships orders: that an order is shipped, and that its task is done, is one commit."""

import os
from typing import Any

import asyncpg

import duly

worker = duly.Worker(os.environ["DULY_REDIS_URL"], concurrency=10)


@worker.task("order.ship")
async def ship(ctx: duly.Context, payload: dict[str, Any]) -> None:
    connection = await asyncpg.connect(os.environ["DULY_DATABASE_URL"])
    try:
        async with connection.transaction():
            await connection.execute(
                "update shop.orders set shipped = shipped + 1 where number = $1", payload["order"]
            )
            await ctx.complete_in(connection, {"shipped": payload["order"]})
    finally:
        await connection.close()
