"""The workers that `scripts/bench` starts: a handler that does nothing."""

import os

from duly.nodes.worker import Context, Worker

worker = Worker(os.environ["DULY_REDIS_URL"], queues=["bench"])


@worker.task("bench.noop")
async def noop(ctx: Context, payload: object) -> None:
    """Do nothing: what is measured is all around it."""
