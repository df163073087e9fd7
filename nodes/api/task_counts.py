"""How many tasks there are, counted at most every few seconds however many ask."""

import asyncio
import logging
from datetime import datetime
from typing import NamedTuple

from duly.actors.context import Context
from duly.actors.meters.names import OTHER
from duly.storage import counting
from duly.storage.counting import Counts, Depth
from duly.storage.errors import StoreUnavailableError
from duly.wheel.durations import from_us

log = logging.getLogger("duly.api")

_EVERY_S = 5.0
_COUNT_S = 0.05
_WAIT_S = 1.0
_OLD_S = 10.0


class Counted(NamedTuple):
    """What was counted, and when."""

    counts: Counts
    at: datetime


class TaskCounts:
    """Shared by /v1/stats and /metrics."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asking: asyncio.Task[None] | None = None
        self._known: Counted | None = None
        self._again_at = float("-inf")

    async def get(self) -> Counted | None:
        """The counts, some seconds old perhaps; older while PostgreSQL is slow or away; None: never yet."""
        now = self._context.clock.monotonic()
        if now >= self._again_at:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
            if now >= self._again_at + _OLD_S:  # else who asks next has the new ones
                await asyncio.wait({self._asking}, timeout=_WAIT_S)
        return self._known

    async def _ask(self) -> None:
        context = self._context
        now = from_us(context.clock.now_us())
        try:
            counts = await counting.counts(
                context.api_db, now, _COUNT_S, context.clock.monotonic, sorted(context.slots)
            )
            self._known = Counted(counts, now)
        except StoreUnavailableError:
            pass  # readyz says so; what was known stays
        except Exception:
            log.exception("counting the tasks failed")
        finally:
            self._again_at = context.clock.monotonic() + _EVERY_S


def largest(queues: dict[str, Depth], most: int) -> dict[str, Depth]:
    """The `most` queues with the most tasks; the rest of them as one, `OTHER`."""
    ranked = sorted(queues.items(), key=lambda item: (-item[1].pending - item[1].running, item[0]))
    found = dict(ranked[:most])
    rest = [depth for _, depth in ranked[most:]]
    if rest:
        found[OTHER] = Depth(*map(sum, zip(*rest, strict=True)))
    return found
