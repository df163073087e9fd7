"""A worker of tasks with follow-ups: `duly worker follow_worker`, with DULY_REDIS_URL set. It prints each start."""

import asyncio
import os
from typing import Any

import duly

worker = duly.Worker(os.environ["DULY_REDIS_URL"], concurrency=8)


@worker.task("parent")
async def parent(ctx: duly.Context, payload: int) -> dict[str, int]:
    """Complete if the number is even, fail if it is odd."""
    await asyncio.sleep(0.03)
    if payload % 2:
        raise duly.Fail(f"odd: {payload}")
    return {"n": payload}


@worker.task("then")
async def then(ctx: duly.Context, payload: str) -> list[Any]:
    """Give back what it was told."""
    print(f"start {ctx.id} {ctx.token}", flush=True)
    told = ctx.parent
    assert told is not None
    return [payload, str(told.id), told.status, told.result, told.error]


@worker.task("join")
async def join(ctx: duly.Context) -> None:
    """Tell that it has started."""
    print(f"start {ctx.id} {ctx.token}", flush=True)
