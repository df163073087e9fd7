"""Listening on one pub/sub channel, and noticing when the connection has died in silence."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

from duly.storage.redis import AnyRedis, lost_as_trouble

NextMessage = Callable[[float], Coroutine[Any, Any, bytes | None]]
"""Wait about that many seconds for a message; raises one of `redis.TROUBLE` if the channel is dead."""


@asynccontextmanager
async def subscribed(client: AnyRedis, *names: str, answer_s: float) -> AsyncIterator[NextMessage]:
    """Subscribe to these channels; `answer_s` bounds the wait for one answer of the server."""
    pubsub: Any = client.pubsub()

    async def hear(timeout_s: float) -> Any:
        with lost_as_trouble():
            async with asyncio.timeout(timeout_s + answer_s):
                return await pubsub.get_message(ignore_subscribe_messages=True, timeout=timeout_s)

    async def next_message(timeout_s: float) -> bytes | None:
        message = await hear(timeout_s)
        if message is None:  # silence: is there still somebody at the other end?
            with lost_as_trouble():
                async with asyncio.timeout(answer_s):
                    await pubsub.ping()
            message = await hear(answer_s)
            if message is None:
                raise TimeoutError(f"the connection of channel {names[0]} is dead")
        return cast(bytes, message["data"]) if message["type"] == "message" else None

    try:
        with lost_as_trouble():
            async with asyncio.timeout(answer_s):
                await pubsub.subscribe(*names)
            # A server that is loading its data, or full, refuses here, and not at the first message.
            for name in names:
                if await pubsub.get_message(timeout=answer_s) is None:
                    raise TimeoutError(f"the subscription to {name} is not confirmed")
        yield next_message
    finally:
        await pubsub.aclose()
