"""A proxy between the worker and Redis, which can lose connections and answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import SplitResult, urlsplit

_BYTES: Final = 1 << 16
_REDIS_PORT: Final = 6379
_CONNECT_S: Final = 5.0
_TAIL_BYTES: Final = 256  # what is looked for may come in two pieces


class Proxy:
    """Hands bytes on in both directions, until it is told otherwise."""

    def __init__(self, url: str, host: str) -> None:
        """`url`: of the Redis server behind it; `host`: where to listen."""
        self._real: SplitResult = urlsplit(url)
        self._host = host
        self._port = 0
        self._pairs: set[_Pair] = set()
        self._refusing = False
        self._lose: list[bytes] = []
        self._lose_answer: list[bytes] = []
        self.lost = 0
        """Requests that never came to Redis, and answers that never came to the worker."""

    @property
    def url(self) -> str:
        """The server's URL by way of this proxy."""
        secret, at, _ = self._real.netloc.rpartition("@")
        return self._real._replace(netloc=f"{secret}{at}{self._host}:{self._port}").geturl()

    @property
    def used(self) -> bool:
        """Whether the worker is connected by way of this proxy."""
        return bool(self._pairs)

    def listens(self, port: int) -> None:
        """It has been given this port."""
        self._port = port

    def cut(self) -> None:
        """End every connection, and refuse new ones until `mend`."""
        self._refusing = True
        for pair in self._pairs:
            pair.abort()

    def mend(self) -> None:
        """Let connections through again, and lose no more answers."""
        self._refusing = False
        self._lose, self._lose_answer = [], []

    def lose_request(self, part: bytes) -> None:
        """Cut the connection over which these bytes come next, and do not hand them on."""
        self._lose = [part]

    def lose_answer(self, part: bytes) -> None:
        """Cut the connection over which a request with these bytes comes next when it is answered."""
        self._lose_answer = [part]

    def is_lost(self, sent: bytes) -> bool:
        """Whether what was sent on a connection lately is to be lost; only once."""
        return _take(self._lose, sent)

    def is_answer_lost(self, sent: bytes) -> bool:
        """The same of the answer to it."""
        return _take(self._lose_answer, sent)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the worker."""
        if self._refusing:
            writer.transport.abort()
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                above, below = await asyncio.open_connection(
                    self._real.hostname or "localhost", self._real.port or _REDIS_PORT
                )
        except OSError:  # TimeoutError too
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        pair = _Pair(self, writer, below)
        self._pairs.add(pair)
        try:
            if self._refusing:
                pair.abort()
            await asyncio.gather(pair.ask(reader), pair.answer(above))
        finally:
            self._pairs.discard(pair)
            pair.abort()


def _take(wanted: list[bytes], sent: bytes) -> bool:
    found = any(part in sent for part in wanted)
    if found:
        wanted.clear()
    return found


class _Pair:
    """One connection of the worker and the one to Redis that goes with it."""

    def __init__(
        self, proxy: Proxy, worker: asyncio.StreamWriter, redis: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._worker = worker
        self._redis = redis
        self._losing = False

    def abort(self) -> None:
        """End both."""
        self._worker.transport.abort()
        self._redis.transport.abort()

    async def ask(self, source: asyncio.StreamReader) -> None:
        """Hand on what the worker sends."""
        tail = b""
        with contextlib.suppress(OSError):
            while data := await source.read(_BYTES):
                sent, tail = tail + data, (tail + data)[-_TAIL_BYTES:]
                if self._proxy.is_lost(sent):
                    self._proxy.lost += 1
                    self.abort()
                    return
                self._losing = self._losing or self._proxy.is_answer_lost(sent)
                self._redis.write(data)
                await self._redis.drain()
        self._redis.close()

    async def answer(self, source: asyncio.StreamReader) -> None:
        """Hand on what Redis answers."""
        with contextlib.suppress(OSError):
            while data := await source.read(_BYTES):
                if self._losing:
                    self._proxy.lost += 1
                    self.abort()
                    return
                self._worker.write(data)
                await self._worker.drain()
        self._worker.close()


@contextlib.asynccontextmanager
async def proxied(url: str, host: str, port: int) -> AsyncIterator[Proxy]:
    """A proxy for the server at `url`. Raises OSError if `port` is taken."""
    proxy = Proxy(url, host)
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await proxy.serve(reader, writer)

    server = await asyncio.start_server(serve, host, port)
    proxy.listens(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        server.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving)
