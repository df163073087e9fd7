"""Servers of a Redis Cluster that did not answer in time, which no call waits for until they do.

Were each tried by whoever wants something of it, one that hangs would hold up, for the length of a call, all that
its callers have to do elsewhere. So a question of our own waits for it, and all calls fail at once meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from redis.asyncio.cluster import ClusterNode
from redis.exceptions import RedisError

from duly.storage.redis_errors import lost_as_trouble

_ANSWER_S: Final = 2.0
"""So long one question waits; then the next one goes by a new connection."""


class SlowServers:
    """Of one client."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        """`is_known`: whether a server `host:port` is still of the cluster; the others are forgotten."""
        self._is_known = is_known
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def has(self, name: str) -> bool:
        """Whether it did not answer in time, and has not since."""
        return name in self._asking

    def note(self, server: ClusterNode) -> None:
        """It did not answer in time."""
        if server.name not in self._asking and not self._closed:
            task = asyncio.create_task(self._ask(server))
            self._asking[server.name] = task
            task.add_done_callback(lambda _: self._asking.pop(server.name, None))

    async def _ask(self, server: ClusterNode) -> None:
        """Until it answers, whatever it may be, or refuses the connection: then calls learn that at once."""
        while self._is_known(server.name):
            try:
                with lost_as_trouble():
                    async with asyncio.timeout(_ANSWER_S):
                        await server.execute_command("PING")
            except TimeoutError:
                continue
            except (RedisError, OSError):
                pass
            return

    async def aclose(self) -> None:
        """Ask no more."""
        self._closed = True
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
