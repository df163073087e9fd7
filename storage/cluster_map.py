"""Which server of a Redis Cluster has which hash slot, as one of the servers told last.

The client library keeps the map and the connections (`redis.asyncio.cluster`). Here is when it is asked for
anew: after a redirection or a failure; at most once a second, by one task for all who wait, and one server
after the other, each for a bounded time.
"""

import asyncio
import time
from typing import Any, Final

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError

from duly.storage import cluster_url
from duly.storage.redis_errors import PrimaryAwayError, lost_as_trouble

_ASK_S: Final = 0.5
"""Longest wait for one server: one that swallows packets must not use up the call's own time."""
_ASK_AGAIN_S: Final = 1.0
_TAGS: Final = 400_000  # numbers, among which there is one for every slot


class ClusterMap:
    """The map of one client; nothing is opened before the first question."""

    def __init__(self, url: str, **options: Any) -> None:
        """`options`: of each connection, as the library's. Raises ValueError as `cluster_url.parse` does."""
        said = cluster_url.parse(url)
        self.login: dict[str, Any] = {"username": said.username, "password": said.password}
        self.tls: dict[str, Any] = {} if said.tls is None else {"ssl": True, **said.tls}
        host, port = said.servers[0]
        self._library = RedisCluster(
            host,
            port,
            require_full_coverage=False,
            address_remap=self._reachable,
            **self.login,
            **self.tls,
            **options,
        )
        self._told_by = host
        self._manager = self._library.nodes_manager
        self.callbacks: dict[str, Any] = self._library.response_callbacks
        """How answers are shaped, by command; every connection uses these."""
        self._named = [self._server(*address) for address in said.servers]
        self._failures: dict[str, int] = {}
        self._told_at: dict[str, float] = {}
        self._primaries: dict[str, tuple[ClusterNode, str]] | None = None
        self._stale = True
        self._asked_at = -float("inf")
        self._asking: asyncio.Task[None] | None = None

    def _reachable(self, address: tuple[str | None, int]) -> tuple[str, int]:
        """Where a server is reached: one that does not know its own name is where the one that tells of it is."""
        host, port = address
        return (host if host and host != "?" else self._told_by), int(port)

    def _server(self, host: str, port: int) -> ClusterNode:
        return ClusterNode(host, port, **self._library.connection_kwargs)

    def note_stale(self) -> None:
        """Something shows that slots have moved, or that a server is away."""
        self._stale = True

    def redirected(self, error: AskError, by: ClusterNode) -> ClusterNode:
        """The server that another one names; with MOVED it has the slot from now on, and the map may be old."""
        host = error.host if error.host and error.host != "?" else by.host
        made = self._server(host, error.port)  # whose name may differ from what was said
        server = self._manager.nodes_cache.setdefault(made.name, made)
        if isinstance(error, MovedError):
            self._manager.slots_cache[error.slot_id] = [server]
            self._stale, self._primaries = True, None
        return server

    async def owner(self, key: str | bytes) -> ClusterNode:
        """The primary that has the key's slot. Raises PrimaryAwayError where no server has it, or none answers."""
        await self.refresh()
        slot = slot_of(key)
        owners = self._manager.slots_cache.get(slot)
        if not owners:
            self._stale = True
            raise PrimaryAwayError(f"no server of the cluster has the slot {slot}")
        return owners[0]

    async def primaries(self) -> dict[str, tuple[ClusterNode, str]]:
        """By `host:port`, each primary that has slots, and a hash tag whose keys it has."""
        await self.refresh()
        if self._primaries is None:
            self._primaries = self._tagged()
        return self._primaries

    def _tagged(self) -> dict[str, tuple[ClusterNode, str]]:
        owners = {
            slot: servers[0] for slot, servers in self._manager.slots_cache.items() if servers
        }
        left = {one.name for one in owners.values()}
        found: dict[str, tuple[ClusterNode, str]] = {}
        for tag in map(str, range(_TAGS)):
            owner = owners.get(slot_of(tag))
            if owner is not None and owner.name in left:
                found[owner.name] = (owner, tag)
                left.discard(owner.name)
                if not left:
                    break
        return found

    async def servers(self) -> list[ClusterNode]:
        """Every server, replicas too."""
        await self.refresh()
        return list(self._manager.nodes_cache.values())

    def has(self, name: str) -> bool:
        """Whether a server `host:port` was there when it was last asked."""
        return name in self._manager.nodes_cache

    def known_owner(self, key: str | bytes) -> ClusterNode | None:
        """The primary that has the key's slot, as far as is known."""
        owners = self._manager.slots_cache.get(slot_of(key))
        return owners[0] if owners else None

    # Asking

    async def refresh(self) -> None:
        """Ask for the map if it may be old. Raises PrimaryAwayError if there is none, and no server answers."""
        if not self._stale:
            return
        if self._asking is None:
            if time.monotonic() < self._asked_at + _ASK_AGAIN_S and self._manager.slots_cache:
                return
            self._asking = asyncio.create_task(self._ask_all())
            self._asking.add_done_callback(self._asked)
        if not self._manager.slots_cache:
            await asyncio.shield(self._asking)
            return
        # What the old map says may be right all the same; but not for long.
        await asyncio.wait({self._asking}, timeout=_ASK_S)

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        self._asked_at = time.monotonic()
        if not task.cancelled() and task.exception() is None:
            self._stale = False

    async def _ask_all(self) -> None:
        """What has failed last; else each in turn, as one that is cut off from the others goes on telling the old."""
        known = {one.name: one for one in (*self._manager.nodes_cache.values(), *self._named)}
        errors = []

        def turn(one: ClusterNode) -> tuple[int, float]:
            return self._failures.get(one.name, 0), self._told_at.get(one.name, 0.0)

        for server in sorted(known.values(), key=turn):
            try:
                async with asyncio.timeout(_ASK_S):
                    await self._ask(server)
                self._failures.pop(server.name, None)
                self._told_at[server.name] = time.monotonic()
                return
            except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
                self._failures[server.name] = self._failures.get(server.name, 0) + 1
                errors.append(f"{server.name}: {str(error) or type(error).__name__}")
        raise PrimaryAwayError(f"no server of the cluster tells who has what: {'; '.join(errors)}")

    async def _ask(self, server: ClusterNode) -> None:
        with lost_as_trouble():
            # The library fails on a server that has left its cluster; that is seen first.
            if not await server.execute_command("CLUSTER SLOTS"):
                raise RedisClusterException("it knows of no slots")
            self._manager.startup_nodes = {server.name: server}
            self._told_by = server.host
            await self._manager.initialize()
            self._primaries = None

    async def aclose(self) -> None:
        """Close every connection."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        servers = {id(one): one for one in (*self._manager.nodes_cache.values(), *self._named)}
        for server in (*servers.values(), *self._manager.startup_nodes.values()):
            await server.disconnect()


def slot_of(key: str | bytes) -> int:
    """The hash slot of a key."""
    words = key if isinstance(key, bytes) else key.encode(errors="surrogateescape")
    return int(key_slot(words))
