"""Listening on channels of a Redis Cluster. What is published at one server, all others hear."""

import random
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from duly.storage.redis_errors import PrimaryAwayError

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from duly.storage.redis_cluster import ClusterClient


class ClusterChannel:
    """As much of redis-py's `PubSub` as Duly uses: a connection to one of the primaries, by chance."""

    def __init__(self, cluster: "ClusterClient") -> None:
        self._cluster = cluster
        self._client: Redis | None = None
        self._pubsub: Any = None
        self._server = ""

    async def subscribe(self, *names: str) -> None:
        """Listen from now on."""
        primaries = await self._cluster.map.primaries()
        if not primaries:
            raise PrimaryAwayError("the cluster has no primary")
        # Another one each time: the next try should not wait for the one that is away.
        self._server, (server, _) = random.choice(list(primaries.items()))
        self._client = self._cluster.single(server)
        self._pubsub = self._client.pubsub()
        try:
            await self._pubsub.subscribe(*names)
        except (RedisError, OSError):
            self._cluster.map.note_stale()
            raise

    async def get_message(self, **options: Any) -> Any:
        """The next message, as `PubSub` gives it."""
        return await self._pubsub.get_message(**options)

    async def ping(self) -> None:
        """Ask for a sign of life; raises if the server is none of the cluster's any more."""
        await self._cluster.map.refresh()
        if not self._cluster.map.has(self._server):
            raise PrimaryAwayError(f"{self._server} has left the cluster")
        await self._pubsub.ping()

    async def aclose(self) -> None:
        """Listen no more."""
        if self._pubsub is not None:
            await self._pubsub.aclose()
        if self._client is not None:
            await self._client.aclose()
