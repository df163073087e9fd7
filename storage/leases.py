"""Slot leases, Redlock-style: a majority of independent servers holds each lease.

After "Distributed Locks with Redis" (the Redis documentation): a random value per holder, SET NX PX
to take, compare and extend to renew, compare and delete to release, all servers asked at once, and
valid for TTL − elapsed − drift from *before* the request was sent. A lease is only a failure
detector here: what decides is the epoch in PostgreSQL.

A server that restarted or was emptied may have forgotten leases that are still held, so it does not
count for new ones before a TTL is over ("delayed restart" in the same page). Such a *young* server
is of use all the same to whoever knows from PostgreSQL that no other node can hold the slot.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from duly.storage import keys
from duly.storage.redis import TROUBLE, InsideClusterError, Scripts, call, connect, text

_DRIFT_SHARE = 0.01
_DRIFT_S = 0.002


class Held(NamedTuple):
    """Slots held by a majority, for `valid_s` seconds from before the request was sent.

    `young`: those of `slots` that it took young servers to get a majority for.
    """

    slots: frozenset[int]
    valid_s: float
    servers_answered: int
    young: frozenset[int] = frozenset()


class LeaseServers:
    """The lease servers of a cluster: 1, 3 or 5.

    `ttl_s` is the life of a lease, `timeout_s` the longest wait for one server (short against the
    TTL, so that a server that swallows packets costs little).
    """

    def __init__(self, urls: Sequence[str], holder: str, ttl_s: float, timeout_s: float) -> None:
        self.holder = holder
        self.ttl_s = ttl_s
        self.valid_s = ttl_s * (1 - _DRIFT_SHARE) - _DRIFT_S
        """How long a lease counts, from before it was asked for."""
        self._clients: list[Redis] = [connect(url, name=f"duly-lease-{holder}") for url in urls]
        self._timeout_s = timeout_s
        self._scripts = [Scripts(client, timeout_s) for client in self._clients]
        self._inside: dict[int, str] = {}  # place among the servers -> what it said
        self.majority = len(urls) // 2 + 1
        self._renewed: tuple[list[int], list[str]] = (
            [],
            [],
        )  # slots of the last renewal, and their keys

    @property
    def inside_cluster(self) -> str | None:
        """Which servers have shown to be of a Redis Cluster, and what to do; None if none has.

        It has no server for the keys of all slots. The number is the place in `lease_redis_urls`, from 0 on.
        """
        if not self._inside:
            return None
        those = (
            f"lease server {at} is one of a Redis Cluster ({said})"
            for at, said in sorted(self._inside.items())
        )
        return f"{', '.join(those)}: name servers of their own in lease_redis_urls"

    async def take(self, slots: Sequence[int], early: Collection[int] = ()) -> Held:
        """Take those of `slots` that are free; a minority's worth is released at once.

        `early`: those that young servers may grant too.
        """
        how = ["early" if slot in early else "take" for slot in slots]
        held, granted = await self._hold(slots, _names(slots), how)
        partial = sorted(granted - held.slots)
        if partial:
            await self.release(partial)
        return held

    async def renew(self, slots: Sequence[int]) -> Held:
        """Renew those of `slots` that are still held."""
        if slots != self._renewed[0]:  # as a rule they are the same for hours
            self._renewed = list(slots), _names(slots)
        held, _ = await self._hold(slots, self._renewed[1], ["renew"])
        return held

    async def release(self, slots: Sequence[int]) -> None:
        """Let go, as far as the servers can be reached; the rest runs out by itself."""
        if slots:
            names = [keys.lease(slot) for slot in slots]
            await self._everywhere("lease_release", names, [self.holder])

    async def holders(self, slots: Sequence[int]) -> dict[int, str] | None:
        """Slot -> holder of its lease, where there is one; None if no majority of the servers answers."""

        async def one(client: Redis) -> Any:
            try:
                return await call(client, "MGET", *names, timeout_s=self._timeout_s)
            except (*TROUBLE, ValueError):
                return None

        names = [keys.lease(slot) for slot in slots]
        replies = await asyncio.gather(*(one(client) for client in self._clients))
        answers = [
            reply for reply in replies if isinstance(reply, list) and len(reply) == len(names)
        ]
        if len(answers) < self.majority:
            return None
        found: dict[int, str] = {}
        for slot, column in zip(slots, zip(*answers, strict=True), strict=True):
            counts = Counter(holder for holder in column if holder)
            for holder, grants in counts.most_common(1):
                if grants >= self.majority:
                    found[slot] = text(holder)
        return found

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()

    async def _hold(
        self, slots: Sequence[int], names: list[str], how: list[str]
    ) -> tuple[Held, frozenset[int]]:
        """What a majority grants of `slots`, and what any server does; `how`: of each, or one for all."""
        args = [self.holder, round(self.ttl_s * 1000), *how]
        replies = await self._everywhere("lease_hold", names, args)
        answers = [reply for reply in replies if _one_each(reply, len(slots))]
        if all(isinstance(reply, int) for reply in answers):  # each says the same of all slots
            grants = {frozenset(slots): [said for said in answers if said]}
        else:
            columns = zip(*(_list(reply, len(slots)) for reply in answers), strict=True)
            grants = {
                frozenset((slot,)): [said for said in column if said]
                for slot, column in zip(slots, columns, strict=True)
            }
        none: frozenset[int] = frozenset()
        majority = {some: said for some, said in grants.items() if len(said) >= self.majority}
        held = none.union(*majority)
        young = none.union(*(s for s, said in majority.items() if said.count(1) < self.majority))
        granted = none.union(*(some for some, said in grants.items() if said))
        return Held(held, self.valid_s, len(answers), young), granted

    async def _everywhere(self, script: str, names: list[str], args: list[Any]) -> list[Any]:
        async def one(at: int) -> Any:
            try:
                answer = await self._scripts[at].run(script, names, args)
            except InsideClusterError as error:
                self._inside[at] = error.said
                return None
            # Not granted by this server; the majority decides. ValueError: it does not talk Redis.
            except (*TROUBLE, ValueError):
                return None
            self._inside.pop(at, None)
            return answer

        if len(self._scripts) == 1:  # the usual case needs no task of its own
            return [await one(0)]
        return list(await asyncio.gather(*map(one, range(len(self._scripts)))))


def _names(slots: Sequence[int]) -> list[str]:
    return [keys.LEASE_SINCE, *(keys.lease(slot) for slot in slots)]


def _one_each(answer: Any, count: int) -> bool:
    return isinstance(answer, int) or (isinstance(answer, list) and len(answer) == count)


def _list(answer: int | list[int], count: int) -> list[int]:
    return [answer] * count if isinstance(answer, int) else answer
