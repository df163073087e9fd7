"""The worker that chaos tests run: `duly worker chaos_worker`, with DULY_REDIS_URL set."""

import asyncio
import os

import duly

worker = duly.Worker(os.environ["DULY_REDIS_URL"], concurrency=20)


@worker.task("work")
async def work(ctx: duly.Context, payload: int) -> int:
    """Take about as long as a small request to somewhere."""
    await asyncio.sleep(0.05)
    return payload
