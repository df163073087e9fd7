"""Permits to dispatch tasks of a queue that has a rate, exact over all nodes, on Redis's clock."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from duly.storage import keys
from duly.storage.redis import Scripts, Word

EARLY_S = 0.02
"""A permit may be given out so long before its time: about as long as a claim takes."""

SLACK_MS = 1_000
"""Tasks of different nodes that are due within so long of each other need not wait for each other."""


class Rate(NamedTuple):
    """`per_s` tasks a second, and up to `burst` at once: at most `per_s` * T + `burst` in any T seconds.

    `revision` grows with each change of what is set. Once Redis has seen a newer one, that counts for
    every node, whichever it knows.
    """

    per_s: float
    burst: int
    revision: int = 0

    @property
    def at_once(self) -> int:
        """As many tasks may be worth asking for at once, and a few that show who else waits."""
        return self.burst + math.ceil(self.per_s * 3 * EARLY_S)


class Grant(NamedTuple):
    """What was granted; `wait_s`: so long until it makes sense to ask for more."""

    permits: int
    wait_s: float


class Permits:
    """One node's access. Methods raise `redis.TROUBLE`."""

    def __init__(self, scripts: Scripts, node_id: str) -> None:
        self._scripts = scripts
        self._node_id = node_id

    async def ask(
        self, queue: str, rate: Rate, ranks: Sequence[int], *, may_say: bool = True
    ) -> Grant:
        """Ask for a permit for each task with one of these ranks, the best first.

        Those that get none wait. Unless `may_say` is False, the other nodes hear of it, and let the
        first of them go before what ranks behind it by more than `SLACK_MS`.
        """
        return await self._run(queue, rate, 0, SLACK_MS if may_say else "", ranks)

    async def give_back(self, queue: str, rate: Rate, count: int) -> None:
        """So many permits were not used: others may have them."""
        await self._run(queue, rate, count, "", ())

    async def next_s(self, queue: str, rate: Rate) -> float:
        """Seconds until the next permit is free; 0 = now."""
        return (await self._run(queue, rate, 0, "", ())).wait_s

    async def _run(
        self, queue: str, rate: Rate, back: int, slack: Word, ranks: Sequence[int]
    ) -> Grant:
        names = [keys.rate(queue), keys.waiting_for_rate(queue)]
        words: list[Word] = [rate.per_s, rate.burst, self._node_id]
        words += [round(EARLY_S * 1e6), back, slack, rate.revision, *ranks]
        granted, wait_us = await self._scripts.run("permits", names, words)
        return Grant(granted, wait_us / 1e6)
