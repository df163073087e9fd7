"""Wait for the end of a task: ask again and again, less and less often."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from duly.nodes.client.errors import Unavailable, Unreachable
from duly.nodes.client.models import Task

FIRST_S: Final = 0.05
"""Pause before the second look, ± 20 %; it grows by half, up to `LONGEST_S`."""

LONGEST_S: Final = 2.0

PATIENCE_S: Final = 60.0
"""A node that does not answer, at its restart say, is asked again for so long."""

_OVER: Final = frozenset({"completed", "failed", "cancelled"})


async def until_over(look: Callable[[], Awaitable[Task]], timeout_s: float | None) -> Task:
    """Return the task that `look` finds once it is over; raises TimeoutError after `timeout_s`.

    Raises what `look` raises; Unreachable and Unavailable only after a minute without an answer.
    """
    loop = asyncio.get_running_loop()
    pause_s, answered = FIRST_S, loop.time()
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                task = await look()
            except (Unreachable, Unavailable):
                if loop.time() - answered > PATIENCE_S:
                    raise
            else:
                answered = loop.time()
                if task.status in _OVER:
                    return task
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
            pause_s = min(LONGEST_S, pause_s * 1.5)
