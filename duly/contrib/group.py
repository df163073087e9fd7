"""A process with a process group of its own, which can be ended with all that it started.

A thread starts it and waits for it. (The event loop could: but uvloop lets file descriptors slip
into its child, which then look as if its output were still held, and knows no other users.)
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_POLL_S: Final = 0.02
_KILL_S: Final = 1.0


class ProcessGroup:
    """Make it within a running loop; `options` are those of `subprocess.Popen`."""

    def __init__(self, words: list[str], **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._code: asyncio.Future[int] = self._loop.create_future()
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._doomed = False
        work = threading.Thread(target=self._live, args=(words, options), daemon=True)
        work.start()

    async def started(self) -> None:
        """Wait for its start; raises OSError if it cannot be started."""
        await asyncio.shield(self._started)

    async def ended(self) -> int:
        """Wait for its end, though not for that of its children; the exit code, or -signal."""
        return await asyncio.shield(self._code)

    async def stop(self, term_s: float) -> None:
        """End it with all of its group: SIGTERM, and SIGKILL after `term_s` or a cancellation."""
        deadline = self._loop.time() + term_s
        try:
            await asyncio.wait([self._started])
            there = self._signal(signal.SIGTERM)
            while there and self._loop.time() < deadline:
                await asyncio.sleep(_POLL_S)
                there = self._signal(0)
        finally:
            with self._lock:
                self._doomed = True
            self._signal(signal.SIGKILL)
        if self._started.exception() is None:
            await asyncio.wait([self._code], timeout=_KILL_S)

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; says whether there is one still."""
        with self._lock:
            pid = self._pid
        try:
            if pid is not None:
                os.killpg(pid, number)
            return pid is not None
        except ProcessLookupError:
            return False
        except PermissionError:  # only others' processes (sudo), or on macOS a zombie, are left
            return False

    # In the thread

    def _live(self, words: list[str], options: dict[str, Any]) -> None:
        try:
            process = subprocess.Popen(words, start_new_session=True, **options)
        except Exception as error:  # noqa: BLE001 - it goes to whoever waits for the start
            self._tell(self._started.set_exception, error)
            return
        with self._lock:
            self._pid = process.pid
            doomed = self._doomed
        if doomed:  # nobody had the patience to wait for the start
            self._signal(signal.SIGKILL)
        self._tell(self._started.set_result, None)
        self._tell(self._code.set_result, process.wait())

    def _tell(self, set_to: Callable[[T], None], value: T) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(set_to, value)
