"""A process's access to the simulated Redis: what `duly.storage.redis.connect` gives, to its callers."""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any
from unittest.mock import patch

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError

import duly.storage.redis
from simulated.link import Link, NoAnswerError, NotSentError
from simulated.redis_commands import OK
from simulated.redis_data import CommandError
from simulated.redis_lua import run_script
from simulated.redis_server import Channel, RedisServer

_connect = duly.storage.redis.connect
_connect_any = duly.storage.redis.connect_any

Find = Callable[[str], tuple[RedisServer, Link]]
"""The server of a URL, and the link of the process that asks."""


class SimulatedRedis:
    """A client: raw replies go through the callbacks that the product has set on its own."""

    def __init__(self, server: RedisServer, link: Link) -> None:
        self._server = server
        self._link = link

    async def execute_command(self, *words: Any) -> Any:
        """One command."""
        if words[0] == "EVALSHA":
            return await self._run_script(*words[1:])
        raw = [*_encoded_name(words[0]), *_encoded(words[1:])]
        what = f"{words[0]} {words[1]}" if len(words) > 1 else words[0]
        reply = await self.exchange(what, lambda: self._server.run(raw), raw)
        callback = _callbacks().get(words[0])
        return callback(reply) if callback is not None else reply

    async def exchange(self, what: str, work: Callable[[], Any], raw: Sequence[bytes] = ()) -> Any:
        """One round trip. Raises what redis-py would."""
        wait = None
        if raw and raw[0] == b"XREADGROUP" and b"BLOCK" in raw:
            words = list(raw)
            block_ms = int(words[words.index(b"BLOCK") + 1])

            def wait(future: "asyncio.Future[Any]") -> None:
                self._server.block(words, future, block_ms / 1000)

        try:
            reply = await self._server.call(self._link, what, work, wait=wait)
        except CommandError as error:
            raise ResponseError(str(error)) from error
        except (NotSentError, NoAnswerError) as error:
            raise LostConnectionError(str(error)) from error
        return b"OK" if reply is OK else reply

    async def _run_script(self, sha1: str, count: int, *words: Any) -> Any:
        name, text = _scripts()[sha1]
        raw = _encoded(words)
        told = words[count + 1] if len(words) > count + 1 and name != "beat" else ""
        commands = self._server.commands
        return await self.exchange(
            f"lua {name} {words[0]} {told}",  # but for a beat, which tells the pid
            lambda: run_script(commands, text, raw[:count], raw[count:]),
        )

    def pubsub(self) -> "_PubSub":
        """Listening on channels."""
        return _PubSub(self, self._server)

    async def aclose(self) -> None:
        """Nothing is open."""


class _PubSub:
    """A subscribed connection. Messages go to whoever is connected then, and to nobody later."""

    def __init__(self, client: SimulatedRedis, server: RedisServer) -> None:
        self._client = client
        self._server = server
        self._channel: Channel | None = None

    async def subscribe(self, *names: str) -> None:
        """Listen from now on."""
        link = self._client._link
        raw = [name.encode() for name in names]
        self._channel = await self._client.exchange(
            f"subscribe {names[0]}", lambda: self._server.subscribe(raw, link)
        )
        for _ in names:
            self._channel.deliver("subscribe", b"")

    async def get_message(
        self, *, ignore_subscribe_messages: bool = False, timeout: float
    ) -> dict[str, Any] | None:
        """The next message, or None when there is none for so long."""
        assert self._channel is not None
        if not self._channel.messages:
            arrival = self._channel.arrival = asyncio.get_running_loop().create_future()
            timer = asyncio.get_running_loop().call_later(timeout, _set, arrival)
            try:
                await arrival
            finally:
                timer.cancel()
        if self._channel.broken:
            raise LostConnectionError("the connection was lost")
        if not self._channel.messages:
            return None
        return self._channel.messages.popleft()

    async def ping(self) -> None:
        """Have a pong sent to the channel."""
        assert self._channel is not None
        channel = self._channel
        await self._client.exchange("ping", lambda: channel.deliver("pong", b""))

    async def aclose(self) -> None:
        """Listen no more."""
        if self._channel is not None:
            self._server.unsubscribe(self._channel)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _encoded(words: Sequence[Any]) -> list[bytes]:
    return [
        word if type(word) is bytes
        else word.encode(errors="surrogateescape") if type(word) is str
        else repr(word).encode()
        for word in words
    ]  # fmt: skip


@cache
def _encoded_name(name: str) -> list[bytes]:
    return [word.encode() for word in name.split()]


@cache
def _callbacks() -> dict[str, Any]:
    client: Any = _connect("redis://simulated:1/0", name="none")
    return dict(client.response_callbacks)


@cache
def _scripts() -> dict[str, tuple[str, str]]:
    """The name and the text of each script of the product, by its SHA-1."""
    found = {}
    for path in files("duly.storage.lua").iterdir():
        if path.name.endswith(".lua"):
            text = path.read_text(encoding="utf-8")
            sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            found[sha1] = (path.name.removesuffix(".lua"), text)
    return found


@contextmanager
def instead_of_redis(find: Find) -> Iterator[None]:
    """Within the block every client that the product makes is a simulated one."""

    def connect(url: str, *, name: str, **_: Any) -> Redis:
        return SimulatedRedis(*find(url))  # type: ignore[return-value]

    patches = [
        patch.object(module, made, connect)
        for name, module in list(sys.modules.items())
        for made, product in (("connect", _connect), ("connect_any", _connect_any))
        if name.startswith("duly.") and getattr(module, made, None) is product
    ]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
