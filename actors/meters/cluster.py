"""The last hour of the whole cluster, minute by minute, as it stands in Redis."""

from typing import NamedTuple

import msgspec

from duly.actors.context import Context
from duly.actors.meters.minutes import KEPT, MINUTE_US, Figures, decode
from duly.storage.redis import TROUBLE

_OLD = 3
"""Minutes before the one that runs which may still change; older ones change only if a node wrote late."""
_ALL_EVERY_S = 60.0
_LOOK_EVERY_S = 2.0


class Hour(NamedTuple):
    """The last `KEPT` minutes by number, oldest first; a minute without figures is there, and empty.

    `whole`: of all nodes. Else Redis did not answer, and they are this node's own.
    """

    minutes: dict[int, Figures]
    whole: bool


class ClusterMeters:
    """Reads what changes every two seconds, the rest every minute, and only if somebody asks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._read: dict[int, Figures] = {}
        """Of the other nodes, merged."""
        self._all_at = float("-inf")
        self._look_at = float("-inf")

    async def hour(self) -> Hour:
        """All figures of the last hour; this node's own up to this moment."""
        context = self._context
        now_us, now = context.clock.now_us(), context.clock.monotonic()
        last = now_us // MINUTE_US
        numbers = range(last - KEPT + 1, last + 1)
        whole = True
        if now >= self._look_at:
            wanted = numbers if now >= self._all_at else numbers[-_OLD - 1 :]
            try:
                await self._look(wanted)
            except TROUBLE:
                whole = False
            else:
                self._look_at = now + _LOOK_EVERY_S
                if wanted is numbers:
                    self._all_at = now + _ALL_EVERY_S
        context.meters.fold(now_us)
        sources = [context.meters.minutes, self._read] if whole else [context.meters.minutes]
        found = {minute: Figures() for minute in numbers}
        for minute, figures in found.items():
            for source in sources:
                if minute in source:
                    figures.merge(source[minute])
        return Hour(found, whole)

    async def _look(self, wanted: range) -> None:
        read = await self._context.statistics.read(wanted)
        for minute, nodes in read.items():
            figures = self._read[minute] = Figures()
            for node, words in nodes.items():
                # Its own figures the node has itself, up to now, whatever became of Redis's data.
                if node != self._context.node_id and (said := _read(words)) is not None:
                    figures.merge(said)
        self._read = {m: one for m, one in self._read.items() if m > wanted[-1] - KEPT}


def _read(words: bytes) -> Figures | None:
    """A node's figures; None if they are not such, as of a version that says it otherwise."""
    try:
        return decode(words)
    except msgspec.DecodeError:
        return None
