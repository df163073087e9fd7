"""The live nodes of a cluster, registered in Redis.

A process registers under an identity of its own at every start, so a restarted node is a new one.
A node lives on for its TTL after its last beat: a late heartbeat changes nothing. A newcomer counts
from its second beat on, so that a process that dies at once moves no slot. Each counts its own
beats: when Redis has lost its data, a node that was established is so again with its next beat.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from duly.storage import keys
from duly.storage.channel import NextMessage, subscribed
from duly.storage.redis import Scripts, Word, call, connect_any, server_time_s

_ESTABLISHED_BEATS = 2
_VANISHED_MAX = 100


def id_in_store(node_id: str, store: int) -> str:
    """What a process is called as a node of one of several stores: it is a node of each."""
    return f"{node_id}/{store}" if store else node_id


def store_of(node_id: str) -> int:
    """The store that a node of this id works on."""
    _, slash, number = node_id.rpartition("/")
    return int(number) if slash else 0


class Vanished(NamedTuple):
    """A node that is not live any more."""

    words: bytes
    """What it said of itself last."""
    at: float
    """When it was missed first, on this process's monotonic clock."""


class Members:
    """Membership of one node. Methods raise `redis.TROUBLE`."""

    def __init__(self, url: str, node_id: str, ttl_s: float, timeout_s: float) -> None:
        self._node_id = node_id
        self._store = store_of(node_id)
        self._ttl_ms = round(ttl_s * 1000)
        self._timeout_s = timeout_s
        self._beats = 0
        self.words: Mapping[str, bytes] = {}
        """What each live node said of itself, as of this node's last beat."""
        self.vanished: dict[str, Vanished] = {}
        """Of the nodes that this one has seen, those that are not live any more; the latest hundred."""
        self._client = connect_any(url, name=f"duly-{node_id}-member")
        self._scripts = Scripts(self._client, timeout_s)

    async def beat(self, info: bytes) -> frozenset[str]:
        """Show that this node lives, and answer which do. If none is established, all count.

        Of several stores, those that work on the same one.
        """
        names = [keys.NODES_SEEN, keys.NODES_BEATS, keys.NODES_INFO, keys.NODES_GONE]
        words: list[Word] = [self._node_id, info, self._ttl_ms, self._beats + 1]
        rows = await self._scripts.run("beat", names, words)
        self._beats += 1
        self._note({name.decode(): said for name, _, said in rows if said})
        beats = {name.decode(): count for name, count, _ in rows}
        beats = {name: count for name, count in beats.items() if store_of(name) == self._store}
        established = {name for name, count in beats.items() if count >= _ESTABLISHED_BEATS}
        return frozenset(established or beats)

    def _note(self, words: Mapping[str, bytes]) -> None:
        now = time.monotonic()
        for name in self.words.keys() - words.keys():
            self.vanished[name] = Vanished(self.words[name], now)
        for name in self.vanished.keys() & words.keys():
            del self.vanished[name]
        for name in list(self.vanished)[:-_VANISHED_MAX]:
            del self.vanished[name]
        self.words = words

    async def registered(self) -> dict[str, bytes]:
        """Node id -> what it says of itself, of all that Redis knows now."""
        ids = await self._call("ZRANGE", keys.NODES_SEEN, 0, -1)
        if not ids:
            return {}
        said = await self._call("HMGET", keys.NODES_INFO, *ids)
        return {name.decode(): words for name, words in zip(ids, said, strict=True) if words}

    async def silent_s(self, node_id: str) -> float | None:
        """Seconds since a node last beat, alive or not; None if that is not known."""
        for name in (keys.NODES_SEEN, keys.NODES_GONE):
            score = await self._call("ZSCORE", name, node_id)
            if score is not None:
                seconds, microseconds = await server_time_s(
                    self._client, name, timeout_s=self._timeout_s
                )
                now_s = seconds + microseconds / 1e6
                return max(0.0, now_s - float(score) / 1000)
        return None

    async def leave(self) -> None:
        """Withdraw: the others need not wait for the TTL."""
        for words in (
            ("ZREM", keys.NODES_SEEN, self._node_id),
            ("HDEL", keys.NODES_BEATS, self._node_id),
            ("HDEL", keys.NODES_INFO, self._node_id),
        ):
            await self._call(*words)

    async def announce(self) -> None:
        """Tell the others that slots have become free."""
        await self._call("PUBLISH", keys.NODES_CHANGED, b"")

    def changes(self) -> AbstractAsyncContextManager[NextMessage]:
        """Listen for such announcements."""
        return subscribed(self._client, keys.NODES_CHANGED, answer_s=self._timeout_s)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def _call(self, *words: Word) -> Any:
        return await call(self._client, *words, timeout_s=self._timeout_s)
