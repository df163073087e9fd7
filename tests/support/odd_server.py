"""A server that answers every command of Redis the same way, whatever it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import cast

from waiting import wait_for

ANSWERS = {
    "closed": b"",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "read-only": b"-READONLY You can't write against a read only replica.\r\n",
    "full": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "nonsense": b"\x16\x03\x01\x02nonsense\r\n",
    "not a number": b":x\r\n",
    "no list": b"+OK\r\n",
    "too short": b"*1\r\n:1\r\n",
    "silence": None,
}


@asynccontextmanager
async def odd_server(answer: bytes | None) -> AsyncIterator[str]:
    """A server that says the same to every command; None: nothing at all."""

    open_ones: set[asyncio.BaseTransport] = set()

    class Odd(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)
            open_ones.add(transport)

        def data_received(self, data: bytes) -> None:
            if answer:
                self.transport.write(answer * data.count(b"*"))
            elif answer is not None:
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            open_ones.discard(self.transport)

    server = await asyncio.get_running_loop().create_server(Odd, "127.0.0.1", 0)
    with closing(server):
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    await wait_for(lambda: not open_ones, 10, "every connection is closed")
