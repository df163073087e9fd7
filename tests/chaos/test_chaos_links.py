"""The links of the chaos test do to connections what they say."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from chaos_lab.proxy import Link

_PATIENCE_S = 30.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    """A link to a server that answers each line with the same line."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line)
        except ConnectionError:
            pass  # as some tests want it
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = Link("test", [1, server.sockets[0].getsockname()[1]])  # nobody listens on the first
    await made.open()
    yield made
    made.close()
    server.close()


@pytest.fixture
async def connect(link: Link) -> AsyncIterator[Connect]:
    """Makes connections to the link, and closes them."""
    made: list[asyncio.StreamWriter] = []

    async def one() -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        made.append(writer)
        return reader, writer

    yield one
    for writer in made:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def within(work: Awaitable[bytes], seconds: float = _PATIENCE_S) -> bytes:
    return await asyncio.wait_for(work, seconds)


async def said(streams: Streams, line: bytes) -> bytes:
    """The answer to a line."""
    reader, writer = streams
    writer.write(line)
    return await within(reader.readline())


async def test_it_passes_everything_in_both_directions(link: Link, connect: Connect) -> None:
    reader, writer = await connect()
    sent = b"".join(b"%d\n" % number for number in range(200_000))
    writer.write(sent)
    assert await within(reader.readexactly(len(sent))) == sent


async def test_a_slow_link_keeps_the_order_and_loses_nothing(link: Link, connect: Connect) -> None:
    streams = await connect()
    assert await said(streams, b"a\n") == b"a\n"
    link.delay_s = 0.1
    began = time.monotonic()
    assert await said(streams, b"b\n") == b"b\n"
    assert time.monotonic() - began >= 0.15
    streams[1].write(b"c\n")
    link.heal()
    assert await said(streams, b"d\n") == b"c\n"
    assert await within(streams[0].readline()) == b"d\n"


async def test_a_cut_link_resets_what_is_there_and_what_comes_until_it_is_healed(
    link: Link, connect: Connect
) -> None:
    there = await connect()
    assert await said(there, b"a\n") == b"a\n"
    link.break_off()
    with pytest.raises(ConnectionError):
        await said(there, b"b\n")
    with pytest.raises(ConnectionError):
        await said(await connect(), b"c\n")
    link.heal()
    assert await said(await connect(), b"d\n") == b"d\n"


async def test_a_half_open_link_is_silent_for_ever_on_the_connections_of_its_time(
    link: Link, connect: Connect
) -> None:
    before = await connect()
    assert await said(before, b"a\n") == b"a\n"
    link.swallow()
    during = await connect()
    for reader, writer in (before, during):
        writer.write(b"b\n")
        with pytest.raises(TimeoutError):
            await within(reader.readline(), 0.3)
    link.heal()
    for reader, writer in (before, during):
        writer.write(b"c\n")
        with pytest.raises(TimeoutError):
            await within(reader.readline(), 0.3)
    after = await connect()
    assert await said(after, b"d\n") == b"d\n"
