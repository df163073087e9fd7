"""Duly's workers beside peers: a handler that does nothing, and one that notes when it started."""

import os

from benchmarks.peers.notes import Notes
from duly.nodes.worker import Context, Worker

worker = Worker(os.environ["DULY_REDIS_URL"], queues=["bench"], concurrency=200)
_notes = Notes(os.environ["BENCH_NOTES"])


@worker.task("bench.noop")
async def noop(ctx: Context, payload: dict[str, int | str]) -> None:
    """Do nothing."""


@worker.task("bench.noted")
async def noted(ctx: Context, payload: dict[str, int | str]) -> None:
    """Note the start."""
    _notes.started(int(payload["n"]))
