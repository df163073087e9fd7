"""Figures of nodes by minute, in Redis: a dead node's minutes still count, and any node can answer."""

from collections.abc import Sequence

from duly.storage import keys
from duly.storage.redis import Scripts, Word, connect_any


class Statistics:
    """Access of one node. Methods raise `redis.TROUBLE`."""

    def __init__(self, url: str, node_id: str, timeout_s: float) -> None:
        self._node_id = node_id
        self._client = connect_any(url, name=f"duly-{node_id}-stats")
        self._scripts = Scripts(self._client, timeout_s)

    async def write(self, minute: int, figures: bytes) -> None:
        """Put this node's figures of a minute in the place of those written before."""
        args: list[Word] = [self._node_id, figures, keys.STATISTICS_TTL_MS]
        await self._scripts.run("statistics_write", [keys.statistics(minute)], args)

    async def read(self, minutes: Sequence[int]) -> dict[int, dict[str, bytes]]:
        """For each of these minutes: node id -> its figures."""
        names = [keys.statistics(minute) for minute in minutes]
        rows = await self._scripts.run("statistics_read", names, [])
        return {
            minute: {name.decode(): words for name, words in zip(row[::2], row[1::2], strict=True)}
            for minute, row in zip(minutes, rows, strict=True)
        }

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()
