"""An event loop with a clock that jumps and an order that a seed draws.

When nothing is ready the clock moves to the next timer at once. What is ready runs in an order
drawn from the seed. Tasks carry the name of the process that they simulate in a context variable;
a paused process's callbacks are set aside, as SIGSTOP does: time goes by for it all the same.
"""

import asyncio
import itertools
import random
import selectors
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import Any, cast

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""Which simulated process a task belongs to; empty: the world itself."""

START_S = 1000.0

_TURNS_MAX = 5_000
"""More turns of the loop at one moment are a livelock."""


class _Task(asyncio.Task[Any]):
    """Hashes by its number: sets of tasks are iterated over in the same order each time."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(work, **kwargs)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class _Jump(selectors.SelectSelector):
    """Instead of waiting for a time it moves the clock by that time. There is no I/O."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now = START_S
        self.loop: SimulationLoop
        self._rng = rng
        self._moved_at = START_S
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: deque[Any] = self.loop._ready
        if self.loop.paused:
            self.loop.set_aside(ready)
        if len(ready) > 1:
            some = list(ready)
            self._rng.shuffle(some)
            ready.clear()
            ready.extend(some)
        elif not ready:
            if timeout is None:
                raise AssertionError("every task waits, and no timer will wake one")
            self.now += max(0.0, timeout)
        self._look_for_a_standstill()
        return []

    def _look_for_a_standstill(self) -> None:
        if self.now > self._moved_at:
            self._moved_at, self._turns = self.now, 0
        self._turns += 1
        if self._turns > _TURNS_MAX:
            raise AssertionError(f"{_TURNS_MAX} turns, and the clock stands at {self.now:.6f}")


class SimulationLoop(asyncio.SelectorEventLoop):
    """`time()` is the virtual clock, in seconds, from `START_S`."""

    _ready: "deque[Any]"

    def __init__(self, seed: int) -> None:
        self._jump = _Jump(random.Random(seed))
        self._jump.loop = self
        self.paused: dict[str, deque[Any]] = {}
        self._numbers = itertools.count()
        super().__init__(self._jump)
        self.set_task_factory(cast(Any, self._make_task))

    def time(self) -> float:
        return self._jump.now

    def _make_task(
        self, _: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **kwargs: Any
    ) -> "asyncio.Task[Any]":
        return _Task(work, next(self._numbers), loop=self, **kwargs)

    def pause(self, process: str) -> None:
        """Stop running what belongs to a process."""
        self.paused.setdefault(process, deque())

    def resume(self, process: str) -> None:
        """Go on with it."""
        self._ready.extend(self.paused.pop(process, ()))

    def set_aside(self, ready: "deque[Any]") -> None:
        """Take what belongs to paused processes out of `ready`."""
        for _ in range(len(ready)):
            handle = ready.popleft()
            context: Context | None = handle._context
            held = self.paused.get(context.get(PROCESS, "")) if context is not None else None
            (ready if held is None else held).append(handle)
