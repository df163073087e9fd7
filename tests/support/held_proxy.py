"""A TCP proxy that can hold back everything, both ways, and deliver it later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_BYTES = 65536
_END_S = 10.0


class HeldProxy:
    """While held, connections stay open and nothing passes; what was sent arrives after it."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._open = asyncio.Event()
        self._open.set()
        self.serving: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Let nothing pass from now on."""
        self._open.clear()

    def release(self) -> None:
        """Deliver what was held, and let everything pass."""
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        above, below = await asyncio.open_connection(self._host, self._port)
        await asyncio.gather(self._pump(reader, below), self._pump(above, writer))

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(_BYTES):
                await self._open.wait()
                target.write(data)
                await target.drain()
            await self._open.wait()
        except ConnectionError:
            return  # one end is gone: so is the other
        finally:
            target.close()


@asynccontextmanager
async def held_proxy(url: str) -> AsyncIterator[tuple[str, HeldProxy]]:
    """A proxy in front of the server of `url`, and its URL; close clients before the block ends."""
    real = urlsplit(url)
    assert real.hostname is not None
    assert real.port is not None
    proxy = HeldProxy(real.hostname, real.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = real.netloc.rpartition("@")[0]
    try:
        yield real._replace(netloc=f"{place}@127.0.0.1:{port}").geturl(), proxy
    finally:
        proxy.release()
        server.close()
        if proxy.serving:
            await asyncio.wait(proxy.serving, timeout=_END_S)
