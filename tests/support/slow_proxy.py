"""A TCP proxy in front of a Redis server that hands its answers on late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_BYTES = 65536
_END_S = 10.0


@asynccontextmanager
async def slow_proxy(url: str, delay_s: float) -> AsyncIterator[str]:
    """The URL of a proxy for `url`; clients are to be closed before the block ends."""
    real = urlsplit(url)
    assert real.hostname is not None
    assert real.port is not None
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        above, below = await asyncio.open_connection(real.hostname, real.port)
        await asyncio.gather(_pump(reader, below, 0.0), _pump(above, writer, delay_s))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = real.netloc.rpartition("@")[0]
    try:
        yield real._replace(netloc=f"{place}@127.0.0.1:{port}").geturl()
    finally:
        server.close()
        if serving:
            await asyncio.wait(serving, timeout=_END_S)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_s: float) -> None:
    try:
        while data := await source.read(_BYTES):
            await asyncio.sleep(delay_s)
            target.write(data)
            await target.drain()
    except ConnectionError:
        return  # one end is gone: so is the other
    finally:
        target.close()
