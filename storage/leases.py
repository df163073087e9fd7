"""Slot leases, Redlock-style: a majority of independent servers holds each lease.

After "Distributed Locks with Redis" (the Redis documentation): a random value per holder, SET NX PX
to take, compare and extend to renew, compare and delete to release, all servers asked at once, and
valid for TTL − elapsed − drift from *before* the request was sent. A lease is only a failure
detector here: what decides is the epoch in PostgreSQL.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from duly.storage import keys
from duly.storage.redis import TROUBLE, Scripts, connect

_DRIFT_SHARE = 0.01
_DRIFT_S = 0.002


class Held(NamedTuple):
    """Slots held by a majority, for `valid_s` seconds from before the request was sent."""

    slots: frozenset[int]
    valid_s: float
    servers_answered: int


class LeaseServers:
    """The lease servers of a cluster: 1, 3 or 5.

    `ttl_s` is the life of a lease, `timeout_s` the longest wait for one server (short against the
    TTL, so that a server that swallows packets costs little).
    """

    def __init__(self, urls: Sequence[str], holder: str, ttl_s: float, timeout_s: float) -> None:
        self.holder = holder
        self.ttl_s = ttl_s
        self._clients: list[Redis] = [connect(url, name=f"duly-lease-{holder}") for url in urls]
        self._scripts = [Scripts(client, timeout_s) for client in self._clients]
        self.majority = len(urls) // 2 + 1

    async def take(self, slots: Sequence[int]) -> Held:
        """Take those of `slots` that are free; a minority's worth is released at once."""
        held, answers = await self._ask("lease_take", slots)
        partial = [s for s in slots if any(s in a for a in answers) and s not in held.slots]
        if partial:
            await self.release(partial)
        return held

    async def renew(self, slots: Sequence[int]) -> Held:
        """Renew those of `slots` that are still held."""
        held, _ = await self._ask("lease_renew", slots)
        return held

    async def release(self, slots: Sequence[int]) -> None:
        """Let go, as far as the servers can be reached; the rest runs out by itself."""
        if slots:
            await self._everywhere("lease_release", slots, [self.holder])

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()

    async def _ask(self, script: str, slots: Sequence[int]) -> tuple[Held, list[frozenset[int]]]:
        replies = await self._everywhere(script, slots, [self.holder, round(self.ttl_s * 1000)])
        answers = [
            frozenset(slot for slot, yes in zip(slots, reply, strict=True) if yes)
            for reply in replies
            if reply is not None
        ]
        held = frozenset(s for s in slots if sum(s in a for a in answers) >= self.majority)
        valid_s = self.ttl_s * (1 - _DRIFT_SHARE) - _DRIFT_S
        return Held(held, valid_s, len(answers)), answers

    async def _everywhere(self, script: str, slots: Sequence[int], args: list[Any]) -> list[Any]:
        names = [keys.lease(slot) for slot in slots]

        async def one(scripts: Scripts) -> Any:
            try:
                answer = await scripts.run(script, names, args)
            # Not granted by this server; the majority decides. ValueError: it does not talk Redis.
            except (*TROUBLE, ValueError):
                return None
            shaped = script == "lease_release" or _one_each(answer, len(names))
            return answer if shaped else None

        return list(await asyncio.gather(*(one(scripts) for scripts in self._scripts)))


def _one_each(answer: Any, count: int) -> bool:
    return isinstance(answer, list) and len(answer) == count
