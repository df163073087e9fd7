"""Reads an event stream as clients do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

WAIT_S = 60.0


class Heard(NamedTuple):
    """One event."""

    name: str
    data: dict[str, Any]


class EventStream:
    """An open stream."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> Heard | None:
        """The next event, past heartbeats; None once the stream has ended."""
        name = ""
        async with asyncio.timeout(WAIT_S):
            while line := await self._answer.content.readline():
                word, _, text = line.decode().rstrip("\n").partition(": ")
                if word == "event":
                    name = text
                elif word == "data":
                    return Heard(name, json.loads(text))
        return None

    async def until(self, name: str, **fields: object) -> Heard:
        """The next event of this name whose data has these values."""
        while (heard := await self.next()) is not None:
            if heard.name == name and fields.items() <= heard.data.items():
                return heard
        raise AssertionError(f"the stream ended without {name} {fields}")


@asynccontextmanager
async def events(http: aiohttp.ClientSession, query: str = "") -> AsyncIterator[EventStream]:
    """A stream that listens already."""
    async with http.get(f"/v1/events{query}", timeout=aiohttp.ClientTimeout(total=None)) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        stream = EventStream(answer)
        await stream.until("state", live=True)
        yield stream
