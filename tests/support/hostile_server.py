"""Servers that answer HTTP requests byte by byte as a test wants them to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from waiting import wait_for


class Got(NamedTuple):
    """A request as it came."""

    line: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes


Play = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]
"""Writes the answer; the connection is closed when it returns or fails, or the client hangs up."""


class Hostile:
    """A running server."""

    def __init__(self) -> None:
        self.port = 0
        self.got: list[Got] = []
        """The requests so far."""
        self.open = 0
        """Connections that are open now."""
        self.sent = 0
        """Bytes of endless answers that were taken."""

    async def pour(self, writer: asyncio.StreamWriter, piece: bytes, pause_s: float = 0) -> None:
        """Write without an end."""
        while True:
            writer.write(piece)
            await writer.drain()
            self.sent += len(piece)
            await asyncio.sleep(pause_s)

    async def closed(self) -> None:
        """Wait until every connection is closed."""
        await wait_for(lambda: not self.open, 60, "every connection is closed")


@asynccontextmanager
async def hostile(
    play: Callable[[Hostile], Play], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Hostile]:
    """A server on 127.0.0.1 that plays for each request."""
    server = Hostile()
    answer = play(server)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.open += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
                got = await _read(reader)
                server.got.append(got)
                playing = asyncio.ensure_future(answer(got, writer))
                hung_up = asyncio.ensure_future(reader.read())
                await asyncio.wait({playing, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                hung_up.cancel()
                playing.cancel()
                with suppress(asyncio.CancelledError):
                    await playing
                await writer.drain()
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()
            server.open -= 1

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
        await server.closed()
    finally:
        listening.close()


async def _read(reader: asyncio.StreamReader) -> Got:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *rest = head.strip().split("\r\n")
    headers = {}
    for header in rest:
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Got(line, headers, body)


def answers(
    *, status: str = "200 OK", headers: str = "", body: bytes = b""
) -> Callable[[Hostile], Play]:
    """Play one well-formed answer; `headers`: lines that end with a line break."""
    head = f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode()

    async def play(got: Got, writer: asyncio.StreamWriter) -> None:
        if got.line.startswith("HEAD"):
            writer.write(head)
        else:
            writer.write(head + body)

    return lambda server: play


def redirects(*, status: int = 307, to: str) -> Callable[[Hostile], Play]:
    """Play a redirect; `{port}` in `to` becomes the server's."""

    def make(server: Hostile) -> Play:
        async def play(got: Got, writer: asyncio.StreamWriter) -> None:
            place = to.format(port=server.port)
            writer.write(
                f"HTTP/1.1 {status} X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
            )

        return play

    return make
