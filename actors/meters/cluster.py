"""The last hour of the whole cluster, minute by minute, as it stands in Redis.

A busy node's minute has thousands of numbers. So what does not change any more is read, merged and summed
once; and wherever there is more than a minute to merge, the node's other work goes on in between.
"""

from collections.abc import Mapping
from typing import NamedTuple

import anyio
import anyio.lowlevel
import msgspec

from duly.actors.context import Context
from duly.actors.meters.minutes import KEPT, MINUTE_US, Figures, decode
from duly.storage.redis import TROUBLE

RECENT = 6
"""Minutes that cover the last five, of which the one that runs is only a part."""

_LIVE = 4
"""The minute that runs and those before it that may still change; older ones change only if a node wrote late."""
_ALL_EVERY_S = 60.0
_LOOK_EVERY_S = 2.0
_NONE = Figures()


class Hour(NamedTuple):
    """The last `KEPT` minutes. `whole`: of all nodes; else Redis did not answer, and they are this node's own."""

    minutes: dict[int, Figures]
    """By number, oldest first; a minute without figures is there, and empty."""
    sum: Figures
    """All of them as one."""
    recent: Figures
    """The last `RECENT` of them as one."""
    whole: bool


class ClusterMeters:
    """Reads what changes every two seconds, the rest every minute, and only if somebody asks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._others: dict[int, _Minute] = {}
        self._merged: dict[int, tuple[Figures, Figures, Figures]] = {}
        """Of a minute that is over: this node's own, the others', both."""
        self._sums = {whole: _Sum() for whole in (True, False)}
        self._all_at = float("-inf")
        self._look_at = float("-inf")
        self._whole = True
        self._lock = anyio.Lock()

    async def hour(self) -> Hour:
        """All figures of the last hour; this node's own up to this moment."""
        context = self._context
        async with self._lock:
            last = context.clock.now_us() // MINUTE_US
            numbers = range(last - KEPT + 1, last + 1)
            await self._refresh(numbers)
            context.meters.fold(context.clock.now_us())
            over = {number: await self._over(number) for number in numbers[:-_LIVE]}
            live = {number: await self._both(number) for number in numbers[-_LIVE:]}
            self._merged = {n: one for n, one in self._merged.items() if n in over}
            total, recent, minutes = await self._sums[self._whole].of(over), Figures(), over | live
            for number in numbers[-max(_LIVE, RECENT) :]:
                if number in live:
                    total.merge(minutes[number])
                if number in numbers[-RECENT:]:
                    recent.merge(minutes[number])
                await anyio.lowlevel.checkpoint()
            return Hour(minutes, total, recent, self._whole)

    def _parts(self, number: int) -> tuple[Figures, Figures]:
        """This node's own and the others' figures of a minute."""
        others = self._others.get(number) if self._whole else None
        own = self._context.meters.minutes.get(number, _NONE)
        return own, _NONE if others is None else others.figures

    async def _both(self, number: int) -> Figures:
        figures = Figures()
        for part in self._parts(number):
            figures.merge(part)
            await anyio.lowlevel.checkpoint()
        return figures

    async def _over(self, number: int) -> Figures:
        """Both, of a minute that is over: merged once."""
        own, others = self._parts(number)
        if others is _NONE:
            return own
        if own is _NONE:
            return others
        known = self._merged.get(number)
        if known is None or known[0] is not own or known[1] is not others:
            known = self._merged[number] = (own, others, await self._both(number))
        return known[2]

    async def _refresh(self, numbers: range) -> None:
        now = self._context.clock.monotonic()
        if now < self._look_at:
            return
        wanted = numbers if now >= self._all_at else numbers[-_LIVE:]
        try:
            read = await self._context.statistics.read(wanted)
        except TROUBLE:
            self._whole = False
            self._look_at = (
                self._context.clock.monotonic() + _LOOK_EVERY_S
            )  # others do not wait, too
            return
        self._whole = True
        for minute, words in read.items():
            # Its own figures the node has itself, up to now, whatever became of Redis's data.
            words.pop(self._context.node_id, None)
            known = self._others.get(minute)
            if known is None or known.words != words:
                self._others[minute] = _Minute(words, await _merged(words))
        self._others = {m: one for m, one in self._others.items() if m in numbers}
        # Not before all of it is merged: whoever waits for this may go away meanwhile.
        self._look_at = now + _LOOK_EVERY_S
        if wanted is numbers:
            self._all_at = now + _ALL_EVERY_S


class _Minute(NamedTuple):
    """Of the other nodes: as it stood in Redis, and merged."""

    words: dict[str, bytes]
    figures: Figures


class _Sum:
    """The sum of many minutes, kept up as they come and go."""

    def __init__(self) -> None:
        self._parts: dict[int, Figures] = {}
        self._sum = Figures()

    async def of(self, minutes: Mapping[int, Figures]) -> Figures:
        """A copy of the sum; a minute is another one if it is another object."""
        for number, part in list(self._parts.items()):
            if minutes.get(number) is not part:
                del self._parts[number]
                self._sum.take_away(part)
                await anyio.lowlevel.checkpoint()
        for number, part in minutes.items():
            if number not in self._parts:
                self._parts[number] = part
                self._sum.merge(part)
                await anyio.lowlevel.checkpoint()
        return self._sum.copy()


async def _merged(words: Mapping[str, bytes]) -> Figures:
    figures = Figures()
    for said in map(_read, words.values()):
        if said is not None:
            figures.merge(said)
        await anyio.lowlevel.checkpoint()
    return figures


def _read(words: bytes) -> Figures | None:
    """A node's figures; None if they are not such, as of a version that says it otherwise."""
    try:
        return decode(words)
    except msgspec.DecodeError:
        return None
