"""A small worker. Run it with `duly worker tour:worker`, or `duly up --worker tour:worker`."""

import asyncio
import os

import duly

worker = duly.Worker(os.environ["DULY_REDIS_URL"], concurrency=10)


@worker.task("greet")
async def greet(ctx: duly.Context, payload: dict[str, str]) -> str:
    print(f"hello {payload['name']}", flush=True)
    return f"greeted {payload['name']}"


@worker.task("flaky")
async def flaky(ctx: duly.Context) -> str:
    if ctx.attempt < 3:
        raise RuntimeError(f"attempt {ctx.attempt} failed")
    return "the third time it worked"


@worker.task("slow")
async def slow(ctx: duly.Context) -> str:
    print(f"attempt {ctx.attempt} in process {os.getpid()}", flush=True)
    await asyncio.sleep(20)
    return "done"
