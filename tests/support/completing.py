"""A worker that completes whatever comes, and remembers what it was given."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hand_worker import HandWorker


class Given(Counter[str]):
    """How often each task was given to the worker."""

    def __init__(self) -> None:
        super().__init__()
        self.late_s: dict[str, float] = {}
        """How long after it was due each task came for the first time, by the machine's clock."""


@asynccontextmanager
async def completing(redis_url: str) -> AsyncIterator[Given]:
    """The worker works until the end."""
    given = Given()

    async def work(worker: HandWorker) -> None:
        while True:
            for taken in await worker.read(50):
                given[taken.id] += 1
                given.late_s.setdefault(taken.id, time.time() - float(taken.fields["due"]) / 1000)
                await worker.report(taken)
            await asyncio.sleep(0.02)

    async with HandWorker(redis_url) as worker:
        await worker.live_and_join()
        working = asyncio.create_task(work(worker))
        try:
            yield given
            assert not working.done() or working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
