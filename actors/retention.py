"""Drops the days whose time is over, without making anybody wait."""

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import date, datetime

from duly.actors.context import Context
from duly.storage import upkeep
from duly.storage.upkeep import Dropped

log = logging.getLogger("duly.upkeep")

_TRIES = 5
_AGAIN_S = 2.0


class Retention:
    """Of one node; every node does it, and a day is dropped by whichever comes first."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[str, date] = {}

    async def drop(self, cutoff: datetime, pause: Callable[[float], Awaitable[bool]]) -> None:
        """Drop what ended before `cutoff`. What is in use now is tried a few times, and in the next round.

        `pause` waits, and answers whether to stop.
        """
        exported = self._context.options.archive_before_drop
        for left in reversed(range(_TRIES)):
            found = await upkeep.drop_old_days(self._context.db, cutoff, exported=exported)
            if found.dropped:
                log.info("dropped %d days", found.dropped)
            if not found.locked:
                break
            if not left:
                log.info("%d days are in use; dropped later", found.locked)
            elif await pause(_AGAIN_S * random.uniform(0.5, 1.5)):
                return
        self._tell_waiting(found)

    def _tell_waiting(self, found: Dropped) -> None:
        days = dict.fromkeys(upkeep.ARCHIVED, 0)
        oldest: dict[str, date] = {}
        for old in found.unexported:
            days[old.parent] += 1
            oldest.setdefault(old.parent, old.day)
        self._context.vitals.unexported_days = days
        newest = {old.parent: old.day for old in found.unexported}
        if newest != self._waiting and newest:
            for parent, day in oldest.items():
                log.warning(
                    "%d days of %s since %s are past their retention and wait to be exported: "
                    "duly archive export",
                    days[parent], parent, day,
                )  # fmt: skip
        elif self._waiting and not newest:
            log.info("no day waits to be exported any more")
        self._waiting = newest
