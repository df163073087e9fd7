"""Threads for plain handlers.

They are daemon threads, unlike those of `concurrent.futures`: a handler that hangs cannot keep the
process from ending. The worker submits no more than its concurrency, so no queue builds up here.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_Job = Callable[[], None]


class Threads:
    """Grows to as many threads as calls run at once; idle ones are used again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._started = 0

    def call(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `work`, which must not raise, in a thread; then `done(result)` on the caller's loop.

        `work` sees a copy of the caller's context variables.
        """
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()

        def job() -> None:
            result = context.run(work)
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                loop.call_soon_threadsafe(done, result)

        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._start()
        self._jobs.put(job)

    def close(self) -> None:
        """Let the threads end as soon as they have finished what they run."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _start(self) -> None:
        self._started += 1
        name = f"{self._name}-{self._started}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # drop the handler's values before the next wait
            with self._lock:
                self._idle += 1
