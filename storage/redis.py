"""Redis clients, and the one way to call them: a time limit around each command.

Replies come as RESP2 shapes them, whichever version of the client library. A call that is
cancelled or too slow closes its connection (the library does), so that no later call can read
its answer.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from duly.storage.cluster_url import is_cluster
from duly.storage.redis_client import Client
from duly.storage.redis_cluster import ClusterClient
from duly.storage.redis_errors import (
    InsideClusterError,
    PrimaryAwayError,
    inside_cluster,
    is_lost,
    is_of_one_queue,
    lost_as_trouble,
)
from duly.storage.sentinel import SCHEME, master_client

__all__ = [
    "TROUBLE", "AnyRedis", "InsideClusterError", "PrimaryAwayError", "Scripts", "Word", "call", "connect", "connect_any",
    "is_of_one_queue", "lost_as_trouble", "server_time_s", "text",
]  # fmt: skip

AnyRedis = Redis | ClusterClient
"""A client of one server, or of a cluster."""

TROUBLE = (RedisError, OSError, TimeoutError)
"""What a call may raise: Redis refused, was too slow, or could not be reached."""

Word = str | bytes | int | float

_Client = TypeVar("_Client", Redis, ClusterClient)

_RAW = ("XREADGROUP", "XRANGE", "XPENDING", "XAUTOCLAIM", "XINFO CONSUMERS")

_OPTIONS: dict[str, Any] = {
    "protocol": 2,
    "max_connections": 1_000,  # as many calls at once; the library's default is 100 in some versions
    # No timeout of the library's own: on Python 3.11 it can swallow a cancellation.
    "socket_timeout": None,
    "socket_connect_timeout": 5.0,
    "health_check_interval": 0,
    "retry": Retry(NoBackoff(), 0),
    # Names that others chose need not be text: what `text` decodes goes back as it was.
    "encoding_errors": "surrogateescape",
}


def connect(url: str, *, name: str, **options: Any) -> Redis:
    """A pooled client of the server at `url`, which opens nothing before its first call.

    `url`: `redis://`, `rediss://`, `unix://`, or `redis+sentinel://` (see `storage.sentinel`).
    Raises ValueError for a URL that is none of these.
    """
    if not url.startswith("unix://"):  # a socket's connection does not know it
        options["socket_keepalive"] = True
    make = master_client if url.startswith(f"{SCHEME}://") else Client.from_url
    client = make(url, **_OPTIONS, client_name=name, **options)
    return _raw(client)


def connect_any(url: str, *, name: str) -> AnyRedis:
    """As `connect`; or a client of the Redis Cluster that `url` names (see `storage.cluster_url`)."""
    if not is_cluster(url):
        return connect(url, name=name)
    return _raw(ClusterClient(url, **_OPTIONS, client_name=name, socket_keepalive=True))


def _raw(client: _Client) -> _Client:
    for command in _RAW:
        client.set_response_callback(command, lambda response, **_: response)
    return client


async def call(client: AnyRedis, *words: Word, timeout_s: float) -> Any:
    """Run one command. Raises one of `TROUBLE`; InsideClusterError if a plain URL leads into a Redis Cluster."""
    execute: Callable[..., Coroutine[Any, Any, Any]] = client.execute_command
    try:
        async with asyncio.timeout(timeout_s):
            return await execute(*words)
    except RuntimeError as error:
        if not is_lost(error):
            raise
        raise ConnectionResetError(str(error)) from error
    except TimeoutError as error:
        if isinstance(client, ClusterClient):
            raise client.slow(words) from error
        raise
    except ResponseError as error:
        if isinstance(client, ClusterClient):
            raise
        if (wrong := inside_cluster(error)) is not None:
            raise wrong from error
        if "READONLY" in str(error):  # also from inside a script
            # The master has become a replica: whoever calls next asks anew where the master is.
            await client.connection_pool.disconnect(inuse_connections=False)
        raise


async def server_time_s(client: AnyRedis, key: str, *, timeout_s: float) -> tuple[int, int]:
    """(seconds, microseconds) by the clock of the server that has `key`. Raises one of `TROUBLE`."""
    if isinstance(client, ClusterClient):
        async with asyncio.timeout(timeout_s):
            seconds, microseconds = await client.at(key, "TIME")
    else:
        seconds, microseconds = await call(client, "TIME", timeout_s=timeout_s)
    return int(seconds), int(microseconds)


def text(name: bytes) -> str:
    """A name that others chose; bytes that are not UTF-8 survive the way there and back."""
    return name.decode(errors="surrogateescape")


@cache
def _script(name: str) -> tuple[str, str]:
    """(text, SHA-1 in hex) of lua/NAME.lua."""
    lua = (files("duly.storage.lua") / f"{name}.lua").read_text(encoding="utf-8")
    return lua, hashlib.sha1(lua.encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """The scripts of lua/ on one client: EVALSHA, or EVAL whenever Redis forgot the script."""

    def __init__(self, client: AnyRedis, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """Run lua/NAME.lua. Raises one of `TROUBLE`."""
        lua, sha1 = _script(name)
        words = (len(keys), *keys, *args)
        try:
            return await call(self._client, "EVALSHA", sha1, *words, timeout_s=self._timeout_s)
        except NoScriptError:
            # Runs and loads in one: no SCRIPT FLUSH can come in between.
            return await call(self._client, "EVAL", lua, *words, timeout_s=self._timeout_s)
