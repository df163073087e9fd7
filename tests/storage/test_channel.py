"""Listening on a channel begins when the server has confirmed it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import RedisError

from duly.storage.channel import subscribed
from duly.storage.redis import call, connect


@asynccontextmanager
async def server_that_loads() -> AsyncIterator[str]:
    """The URL of a server that knows everything but SUBSCRIBE."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                words.append(await reader.readexactly(size + 2))
            refused = words[0].strip().upper() == b"SUBSCRIBE"
            writer.write(b"-LOADING the dataset is being loaded\r\n" if refused else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def test_a_refused_subscription_fails_at_once() -> None:
    async with server_that_loads() as url:
        client = connect(url, name="test")
        with pytest.raises(RedisError, match="loaded"):
            async with subscribed(client, "c", answer_s=30):
                raise AssertionError("not subscribed")
        await client.aclose()


async def test_messages_come_after_the_confirmation(redis_url: str) -> None:
    client = connect(redis_url, name="test")
    async with subscribed(client, "c", "d", answer_s=30) as next_message:
        for channel in ("c", "d"):
            assert await call(client, "PUBLISH", channel, "m", timeout_s=30) == 1
            assert await next_message(30) == b"m"
    await client.aclose()
