"""The worker that chaos tests run: `duly worker chaos_worker`, with DULY_REDIS_URL set."""

import asyncio
import os
import time
from pathlib import Path

import duly

worker = duly.Worker(
    os.environ["DULY_REDIS_URL"], concurrency=20, api=os.environ.get("DULY_TEST_API")
)


@worker.task("work")
async def work(ctx: duly.Context, payload: int) -> int:
    """Take about as long as a small request to somewhere."""
    await asyncio.sleep(0.05)
    return payload


@worker.task("held")
def held(ctx: duly.Context, payload: int) -> int:
    """Run until the test lets it end."""
    print(f"holds {payload}", flush=True)
    gate = Path(os.environ["DULY_TEST_GATE"])
    while not gate.exists():
        time.sleep(0.05)
    return payload


@worker.task("quick")
async def quick(ctx: duly.Context) -> None:
    """Take no time at all."""


@worker.task("hang")
async def hang(ctx: duly.Context) -> None:
    """Run until the process ends."""
    await asyncio.Event().wait()
