"""Redis clients, and the one way to call them: a time limit around each command.

Replies come as RESP2 shapes them, whichever version of the client library. A call that is
cancelled or too slow closes its connection (the library does), so that no later call can read
its answer.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from duly.storage.redis_client import Client
from duly.storage.sentinel import SCHEME, master_client

TROUBLE = (RedisError, OSError, TimeoutError)
"""What a call may raise: Redis refused, was too slow, or could not be reached."""

Word = str | bytes | int | float

_CONNECTIONS = 1_000  # as many calls at once; the library's default is 100 in some versions

_RAW = ("XREADGROUP", "XRANGE", "XPENDING", "XAUTOCLAIM", "XINFO CONSUMERS")


def connect(url: str, *, name: str, **options: Any) -> Redis:
    """A pooled client of the server at `url`, which opens nothing before its first call.

    `url`: `redis://`, `rediss://`, `unix://`, or `redis+sentinel://` (see `storage.sentinel`).
    Raises ValueError for a URL that is none of these.
    """
    if not url.startswith("unix://"):  # a socket's connection does not know it
        options["socket_keepalive"] = True
    make = master_client if url.startswith(f"{SCHEME}://") else Client.from_url
    client = make(
        url,
        protocol=2,
        client_name=name,
        max_connections=_CONNECTIONS,
        # No timeout of the library's own: on Python 3.11 it can swallow a cancellation.
        socket_timeout=None,
        socket_connect_timeout=5.0,
        health_check_interval=0,
        retry=Retry(NoBackoff(), 0),
        # Names that others chose need not be text: what `text` decodes goes back as it was.
        encoding_errors="surrogateescape",
        **options,
    )
    for command in _RAW:
        client.set_response_callback(command, lambda response, **_: response)
    return client


async def call(client: Redis, *words: Word, timeout_s: float) -> Any:
    """Run one command. Raises one of `TROUBLE`."""
    execute: Callable[..., Coroutine[Any, Any, Any]] = client.execute_command
    try:
        async with asyncio.timeout(timeout_s):
            return await execute(*words)
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise ConnectionResetError(str(error)) from error
    except ResponseError as error:
        if "READONLY" in str(error):  # also from inside a script
            # The master has become a replica: whoever calls next asks anew where the master is.
            await client.connection_pool.disconnect(inuse_connections=False)
        raise


@contextmanager
def lost_as_trouble() -> Iterator[None]:
    """Raise ConnectionError where uvloop raises RuntimeError, which redis-py lets through.

    It does so on a write to a connection that was reset at this very moment.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise ConnectionResetError(str(error)) from error


def _is_lost(error: RuntimeError) -> bool:
    return "handler is closed" in str(error)


def is_of_one_queue(error: BaseException) -> bool:
    """Whether only the keys that were named are at fault: another type is there, or no access."""
    text = str(error)
    return isinstance(error, ResponseError) and ("WRONGTYPE" in text or "NOPERM" in text)


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

    def __init__(self, client: Redis, timeout_s: float) -> None:
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
