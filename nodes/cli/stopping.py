"""Signals of commands that look after other processes: Ctrl-C, a plain kill, a closed terminal."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_stopped(work: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> int:
    """Run `work(hurry)`, also through the stop; answers its exit code, 0 if it was stopped.

    The first signal cancels `work`, wherever it is, so that it leaves its context managers and
    cleans up. The next one sets `hurry`: it should not wait for anybody any more.
    """
    loop = asyncio.get_running_loop()
    hurry = asyncio.Event()
    working = loop.create_task(work(hurry))
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            hurry.set()
            return
        asked = True
        working.cancel()
        with suppress(OSError):  # the terminal may be gone
            print("Stopping ...", flush=True)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        return await working
    except asyncio.CancelledError:
        if not asked:
            raise
        return 0
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
