"""XREADGROUP of several streams of a Redis Cluster, whose slots no one command may mix.

First all streams are asked for what is there, those of one primary in one go. Only where nothing is, each is
waited on by a connection of its own; what comes first ends the other waits (CLIENT UNBLOCK). What an answer
brings is given out also where another stream's primary is away: the next read raises that error.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from duly.storage.redis_cluster import AWAY, ClusterClient, Words
from duly.storage.redis_errors import PrimaryAwayError, lost_as_trouble

_ENDS_S: Final = 0.5
"""So long a wait that was ended may take to answer; then its connection is closed."""
_ASK_EVERY_S: Final = 0.05
_UNHEARD_MS: Final = 100
"""Longest wait for one of several streams where waits cannot be ended from elsewhere."""


class ClusterReads:
    """Reads for one consumer. One `read` at a time."""

    def __init__(self, cluster: ClusterClient, timeout_s: float) -> None:
        """`timeout_s`: longest wait for one answer, on top of a read's own blocking time."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._waits: dict[str, _Wait] = {}
        self._owed: Exception | None = None

    async def read(
        self, words: Words, streams: Sequence[str], last: str, block_ms: int
    ) -> list[Any]:
        """As XREADGROUP answers; `words`: those before BLOCK; `last`: the id after which to read, of each.

        Raises one of `redis.TROUBLE`; then entries may have been delivered that nobody has seen.
        """
        if self._owed is not None:
            owed, self._owed = self._owed, None
            raise owed
        if len(streams) > 1 or not block_ms:
            commands = [(*words, "STREAMS", stream, last) for stream in streams]
            answers = await self._cluster.each(commands, self._timeout_s)
            found = self._found([one.value for one in answers])
            if found or not block_ms:
                return found
        return await self._wait(words, streams, last, block_ms)

    def _found(self, values: Sequence[Any]) -> list[Any]:
        """What has come; the first error is raised, now or, if anything has, next time."""
        errors = [one for one in values if isinstance(one, Exception)]
        found = [one for value in values if isinstance(value, list) for one in value]
        if errors and not found:
            raise errors[0]
        self._owed = errors[0] if errors else None
        return found

    async def _wait(
        self, words: Words, streams: Sequence[str], last: str, block_ms: int
    ) -> list[Any]:
        for gone in self._waits.keys() - set(streams):
            await self._waits.pop(gone).aclose()
        waits = [self._waits.setdefault(one, _Wait(self._cluster, one)) for one in streams]
        if len(waits) > 1 and not all(wait.can_end for wait in waits):
            block_ms = min(block_ms, _UNHEARD_MS)
        limit_s = block_ms / 1000 + self._timeout_s
        whole = (*words, "BLOCK", block_ms, "STREAMS")
        tasks = [
            asyncio.create_task(wait.read((*whole, wait.stream, last), limit_s)) for wait in waits
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._end(dict(zip(waits, tasks, strict=True)))
        finally:
            for task in tasks:
                task.cancel()
            values = await asyncio.gather(*tasks, return_exceptions=True)
        return self._found([wait.said(one) for wait, one in zip(waits, values, strict=True)])

    async def _end(self, tasks: "dict[_Wait, asyncio.Task[Any]]") -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDS_S):
                while left := [wait for wait, task in tasks.items() if not task.done()]:
                    await self._unblock(left)
                    await asyncio.wait([tasks[wait] for wait in left], timeout=_ASK_EVERY_S)

    async def unblock(self) -> None:
        """End a `read` that waits, as if its time had run out."""
        await self._unblock(self._waits.values())

    async def _unblock(self, waits: "Iterable[_Wait]") -> None:
        """Those at one server in one go: hundreds of queues must not take a connection each for it."""
        ids: dict[ClusterNode, list[int]] = {}
        for wait in waits:
            if (place := wait.place()) is not None:
                ids.setdefault(place[0], []).append(place[1])
        asked = (
            self._cluster.together(server, [("CLIENT", "UNBLOCK", one) for one in those], _ENDS_S)
            for server, those in ids.items()
        )
        await asyncio.gather(*asked)

    async def aclose(self) -> None:
        """Close the connections of the waits."""
        for wait in self._waits.values():
            await wait.aclose()
        self._waits.clear()


class _Wait:
    """A connection that waits on one stream."""

    def __init__(self, cluster: ClusterClient, stream: str) -> None:
        self.stream = stream
        self.can_end = True
        self._cluster = cluster
        self._server: Any = None
        self._client: Redis | None = None
        self._id: int | None = None
        self._waiting = False

    async def read(self, words: Words, limit_s: float) -> Any:
        """XREADGROUP with BLOCK; None if nothing came. Raises one of `redis.TROUBLE`."""
        client: Any = await self._at_owner()
        self._waiting = True
        try:
            with lost_as_trouble():
                async with asyncio.timeout(limit_s):
                    return await client.execute_command(*words)
        except MovedError as error:
            self._cluster.map.redirected(error, self._server)
            await asyncio.sleep(_ASK_EVERY_S)  # two servers may each take the other for the owner
            return None
        except (AskError, TryAgainError):
            # The stream is on its way: asked at once, as one that does not wait.
            await asyncio.sleep(_ASK_EVERY_S)
            at = words.index("BLOCK", 4)
            return await self._cluster.at(self.stream, *words[:at], *words[at + 2 :])
        except TimeoutError as error:
            raise self._cluster.note_slow(self._server) from error
        except AWAY as error:
            self._id = None
            raise self._cluster.away(self._server.name, error) from error
        finally:
            self._waiting = False

    def said(self, value: Any) -> Any:
        """What a read has brought. If it had to be cut off, the server does not answer."""
        if isinstance(value, asyncio.CancelledError):
            error = PrimaryAwayError("a read was not ended in time")
            return error if self._server is None else self._cluster.note_slow(self._server)
        if isinstance(value, BaseException) and not isinstance(value, Exception):
            raise value
        return value

    async def _at_owner(self) -> Redis:
        server = await self._cluster.map.owner(self.stream)
        if self._client is None or server.name != self._server.name:
            await self.aclose()
            self._server = server
            self._client = self._cluster.single(server, redis_connect_func=self._connected)
        return self._client

    async def _connected(self, connection: Any) -> None:
        """Learn the connection's id, by which `end` ends its wait."""
        await connection.on_connect()
        try:
            await connection.send_command("CLIENT", "ID")
            self._id = int(await connection.read_response())
        except ResponseError:
            self._id, self.can_end = None, False  # not permitted here

    def place(self) -> "tuple[ClusterNode, int] | None":
        """Where it waits: the server, and the connection's id there; None: it does not, or that is not known."""
        return (self._server, self._id) if self._waiting and self._id is not None else None

    async def aclose(self) -> None:
        """Close the connection."""
        self._id = None  # of this server: elsewhere it is another client's
        if self._client is not None:
            await self._client.aclose()
            self._client = None
