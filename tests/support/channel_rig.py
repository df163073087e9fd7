"""A pub/sub channel that says what the test puts in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from duly.storage.channel import NextMessage


class Channel:
    """In the place of `Streams.signals`, for an actor that listens. An exception is raised to it."""

    def __init__(self) -> None:
        self.says: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.subscriptions = 0

    @asynccontextmanager
    async def wakes(self) -> AsyncIterator[NextMessage]:
        """As `Signals.wakes`."""
        self.subscriptions += 1

        async def next_message(silence_s: float) -> bytes | None:
            with anyio.move_on_after(silence_s):
                said = await self.says.get()
                if isinstance(said, Exception):
                    raise said
                return said
            return None

        yield next_message

    control_changes = wakes
