"""A client of a Redis Cluster: each command goes to the primary that has its key.

The library's own client is not called for that, since it sends a command whose answer was lost again (a read
of a stream would hide entries), sends ASKING by another connection than the command, closes all connections
where one server is down, and asks a server where the key of each XREADGROUP is. Its map and its connections are used.

A server that refuses a command has not run it. So it is sent again at once where the server names another
one (MOVED, ASK), and for a moment where the key is on its way (TRYAGAIN). Whatever else keeps a primary from
answering is a PrimaryAwayError: trouble of the keys that it has, not of the others.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, PipelineCommand
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MaxConnectionsError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly.storage.cluster_channel import ClusterChannel
from duly.storage.cluster_map import ClusterMap
from duly.storage.redis_client import Client
from duly.storage.redis_errors import PrimaryAwayError, PrimaryRefusesError, lost_as_trouble
from duly.storage.slow_servers import SlowServers

_REDIRECTIONS: Final = 5
_TRY_AGAIN_S: Final = 1.0
"""For so long a command is tried again whose keys are on their way to another server."""
_TRY_EVERY_S: Final = 0.02
_ANYWHERE_S: Final = 0.5
"""So long one server may take for a command that any of them can run; then another one is asked."""

_ANYWHERE: Final = frozenset({"PUBLISH"})
_SECOND: Final = frozenset({"XGROUP"})
_SCRIPT: Final = frozenset({"EVALSHA", "EVAL"})
AWAY: Final = (RedisConnectionError, RedisTimeoutError, OSError, ClusterDownError, ReadOnlyError)
"""What says that a server does not serve its keys now."""

_REFUSALS: Final = ("OOM ", "NOREPLICAS ", "MISCONF ")

Words = Sequence[Any]


class Answer(NamedTuple):
    """Of one command of several: its value or its error, and the server `host:port` that gave it."""

    value: Any
    server: str


class ClusterClient:
    """As much of redis-py's `Redis` as Duly uses."""

    def __init__(self, url: str, **options: Any) -> None:
        """`options` as of `Redis`. Raises ValueError for a wrong URL."""
        self.map = ClusterMap(url, **options)
        self._options = {**options, **self.map.login, **self.map.tls}
        self._slow = SlowServers(self.map.has)
        self.trusted: set[str] = set()
        """The primaries that are known to have kept what they had; one that fails is none of them any more."""

    def set_response_callback(self, command: str, callback: Any) -> None:
        """How the answers to `command` are shaped."""
        self.map.callbacks[command] = callback

    async def aclose(self) -> None:
        """Close every connection."""
        await self._slow.aclose()
        await self.map.aclose()

    def pubsub(self) -> ClusterChannel:
        """To listen on channels: any server hears what is published at any other."""
        return ClusterChannel(self)

    def single(self, server: ClusterNode, **options: Any) -> Redis:
        """A client of one server alone, with connections of its own."""
        client = Client(host=server.host, port=int(server.port), **{**self._options, **options})
        for command, callback in self.map.callbacks.items():
            client.set_response_callback(command, callback)
        return client

    async def execute_command(self, *words: Any) -> Any:
        """Run one command where its key is; its answer is shaped as the library shapes it."""
        if words[0] in _ANYWHERE:
            return await self.anywhere(*words)
        return await self.at(_key(words), *words)

    async def at(self, key: str | bytes, *words: Any) -> Any:
        """Run a command at the server that has `key`."""
        return (await self._at(key, words)).value

    async def _at(self, key: str | bytes, words: Words) -> Answer:
        until = time.monotonic() + _TRY_AGAIN_S
        server = await self.map.owner(key)
        asking, redirections = False, 0
        while True:
            try:
                return Answer(await self.run(server, words, asking=asking), server.name)
            except TryAgainError as error:
                if time.monotonic() > until:
                    raise PrimaryAwayError(str(error)) from error
                await asyncio.sleep(_TRY_EVERY_S)
                server, asking = await self.map.owner(key), False
            except AskError as error:  # MovedError is one
                redirections += 1
                if redirections > _REDIRECTIONS:
                    raise PrimaryAwayError(f"redirected too often: {error}") from error
                asking = not isinstance(error, MovedError)
                server = self.map.redirected(error, server)

    async def run(self, server: ClusterNode, words: Words, *, asking: bool = False) -> Any:
        """Run a command at one server. Raises PrimaryAwayError, and what the server answers."""
        self._check_slow(server)
        try:
            with lost_as_trouble():
                if not asking:
                    return await server.execute_command(*words)
                # On one connection: it allows the next command of that alone.
                ask, command = PipelineCommand(0, "ASKING"), PipelineCommand(1, *words)
                await server.execute_pipeline([ask, command])
                if isinstance(command.result, Exception):
                    raise command.result
                return command.result
        except MaxConnectionsError:
            raise
        except AWAY as error:
            raise self.away(server.name, error) from error
        except ResponseError as error:
            if isinstance(error, OutOfMemoryError) or str(error).startswith(_REFUSALS):
                raise PrimaryRefusesError(f"{server.name}: {error}") from error
            raise

    def away(self, server: str, error: BaseException) -> PrimaryAwayError:
        """What to raise where a server fails so; the map may be old."""
        self.map.note_stale()
        self.trusted.discard(server)
        return PrimaryAwayError(f"{server}: {str(error) or 'no answer in time'}")

    def note_slow(self, server: ClusterNode) -> PrimaryAwayError:
        """What to raise where a server did not answer in time; no call waits for it until it answers."""
        self._slow.note(server)
        return self.away(server.name, TimeoutError())

    def _check_slow(self, server: ClusterNode) -> None:
        if self._slow.has(server.name):
            self.map.note_stale()  # a replica may have taken its place
            raise PrimaryAwayError(f"{server.name} has not answered in time")

    def slow(self, words: Words) -> PrimaryAwayError:
        """The same, of the server to which this command went."""
        if words[0] in _ANYWHERE:
            return PrimaryAwayError("no server of the cluster has answered in time")
        return self._slow_owner(_key(words))

    def _slow_owner(self, key: str | bytes) -> PrimaryAwayError:
        server = self.map.known_owner(key)
        if server is None:
            return PrimaryAwayError("no server of the cluster has answered in time")
        return self.note_slow(server)

    async def anywhere(self, *words: Any) -> Any:
        """Run a command at any primary that can be reached."""
        primaries = await self.map.primaries()
        error: PrimaryAwayError | None = None
        for server, _ in primaries.values():
            try:
                async with asyncio.timeout(_ANYWHERE_S):
                    return await self.run(server, words)
            except PrimaryAwayError as away:
                error = away
            except TimeoutError:
                error = self.note_slow(server)
        raise error or PrimaryAwayError("the cluster has no primary")

    async def everywhere(self, *words: Any, timeout_s: float) -> list[Any]:
        """Run a command at every server, replicas too; the answers of those that give one."""

        async def at(server: ClusterNode) -> list[Any]:
            try:
                async with asyncio.timeout(timeout_s):
                    return [await self.run(server, words)]
            except PrimaryAwayError:
                return []
            except TimeoutError:
                self.note_slow(server)
                return []

        answers = await asyncio.gather(*(at(server) for server in await self.map.servers()))
        return [one for answer in answers for one in answer]

    async def each(self, commands: Sequence[Words], timeout_s: float) -> list[Answer]:
        """Run commands of one key each, those of a server in one go; an error is the value of its command."""
        answers: list[Answer | None] = [None] * len(commands)
        shares: dict[str, tuple[ClusterNode, list[int]]] = {}
        for at, words in enumerate(commands):
            try:
                server = await self.map.owner(_key(words))
            except PrimaryAwayError as error:
                answers[at] = Answer(error, "")
            else:
                shares.setdefault(server.name, (server, []))[1].append(at)

        async def share(server: ClusterNode, places: list[int]) -> None:
            values = await self.together(server, [commands[at] for at in places], timeout_s)
            for at, value in zip(places, values, strict=True):
                answers[at] = Answer(value, server.name)
                if isinstance(value, AskError | TryAgainError):
                    answers[at] = await self._alone(commands[at], timeout_s)

        await asyncio.gather(*(share(*one) for one in shares.values()))
        return [one for one in answers if one is not None]

    async def _alone(self, words: Words, timeout_s: float) -> Answer:
        key = _key(words)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._at(key, words)
        except TimeoutError:
            return Answer(self._slow_owner(key), "")
        except Exception as error:  # noqa: BLE001 - given to whoever asked for the command
            return Answer(error, "")

    async def together(
        self, server: ClusterNode, commands: Sequence[Words], timeout_s: float
    ) -> list[Any]:
        """Run commands at one server in one go; an error is the value of its command."""
        try:
            self._check_slow(server)
        except PrimaryAwayError as error:
            return [error] * len(commands)
        sent = [PipelineCommand(at, *words) for at, words in enumerate(commands)]
        try:
            with lost_as_trouble():
                async with asyncio.timeout(timeout_s):
                    await server.execute_pipeline(sent)
        except TimeoutError:
            return [self.note_slow(server)] * len(commands)
        except AWAY as error:
            return [self.away(server.name, error)] * len(commands)
        return [
            self.away(server.name, one.result) if isinstance(one.result, AWAY) else one.result
            for one in sent
        ]


def _key(words: Words) -> str | bytes:
    """The first key of a command; all others of it have the same hash tag."""
    name = words[0]
    if name in _SCRIPT:
        key = words[3]
    elif name in _SECOND:
        key = words[2]
    elif name == "XREADGROUP":
        key = words[words.index("STREAMS", 4) + 1]
    else:
        key = words[1]
    return key  # type: ignore[no-any-return]
