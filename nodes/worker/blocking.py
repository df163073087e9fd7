"""`Worker.run`: an event loop of its own, and what the process's signals mean."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

log = logging.getLogger("duly.worker")

LEFTOVER_S: Final = 1.0
"""How long tasks that outlive the worker (handlers that ignore cancellation) may hold up the end."""


def run_until_done(main: Coroutine[Any, Any, None], on_signal: Callable[[], None]) -> None:
    """Run `main` in a new event loop (uvloop if it is installed); `on_signal` at SIGTERM, SIGINT.

    Outside the main thread no signals are handled. Unlike `asyncio.run`, the end is not held up by
    a task that swallows its cancellation.
    """
    loop = _new_loop()
    try:
        asyncio.set_event_loop(loop)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, on_signal)
        loop.run_until_complete(main)
    finally:
        leftovers = asyncio.all_tasks(loop)
        for task in leftovers:
            task.cancel()
        if leftovers:
            loop.run_until_complete(asyncio.wait(leftovers, timeout=LEFTOVER_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
