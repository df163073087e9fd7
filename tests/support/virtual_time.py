"""An event loop whose clock jumps: when nothing is ready to run it moves to the next timer at once.

For tests of tasks, timers and channels in one thread: hours pass in milliseconds, in the same order
each time. Not for sockets, subprocesses and threads, whose answers the clock would not wait for.
"""

import asyncio
import selectors
from typing import Any

VIRTUAL_TIME: tuple[str, dict[str, Any]]
"""Give this as the `anyio_backend` fixture."""


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for a time it moves the clock by that time."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise AssertionError("every task waits, and no timer will wake one")
        self.now += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at time 0; `time()` is the virtual clock, in seconds."""

    def __init__(self) -> None:
        self._clock = _JumpingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


VIRTUAL_TIME = ("asyncio", {"loop_factory": VirtualTimeLoop})
