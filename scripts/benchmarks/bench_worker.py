"""The workers of the scenarios: handlers that do nothing, or nothing but fail at first."""

import os

from duly.nodes.worker import Context, Retry, Worker

worker = Worker(os.environ["DULY_REDIS_URL"], queues=["bench"], concurrency=200)


@worker.task("bench.noop")
async def noop(ctx: Context, payload: object) -> None:
    """Do nothing: what is measured is all around it."""


@worker.task("bench.flaky")
async def flaky(ctx: Context, payload: object) -> None:
    """Fail at the first attempt."""
    if ctx.attempt == 1:
        raise Retry
