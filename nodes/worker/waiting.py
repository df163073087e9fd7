"""Waiting for an event, or for a time."""

import asyncio


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` for `event`; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
