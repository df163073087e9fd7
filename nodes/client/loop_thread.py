"""An event loop in a thread of its own, for code that has none."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for any number of threads.

    The thread is a daemon: a program that forgets to close it can still end.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """False after `close`, in a forked child, and in the loop's own thread."""
        return self._trouble() is None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end; an exception in the waiting thread (Ctrl-C) cancels it.

        Raises RuntimeError when not `usable`.
        """
        trouble = self._trouble()
        if trouble is not None:
            work.close()
            raise RuntimeError(trouble)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread, and what still runs there; safe to call twice."""
        if self._pid != os.getpid():
            return  # the thread and its sockets belong to the parent
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _trouble(self) -> str | None:
        if self._closed:
            return "this client is closed"
        if self._pid != os.getpid():
            return "this client was made before a fork: make one in each process"
        if threading.current_thread() is self._thread:
            return "a sync client cannot be used inside its own event loop"
        return None


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
