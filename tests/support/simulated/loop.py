"""An event loop with a clock that jumps and an order that a seed draws.

When nothing is ready the clock moves to the next timer at once. What is ready runs in turns, each
in an order drawn from the seed. Tasks carry the name of the process that they simulate in a context
variable; a paused process's callbacks are set aside, as SIGSTOP does: time goes by for it all the
same. It has no more of a loop than a world needs: no I/O, no threads, no signals.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""Which simulated process a task belongs to; empty: the world itself."""

START_S = 1000.0

_TURNS_MAX = 5_000
"""More turns of the loop at one moment are a livelock."""

log = logging.getLogger("asyncio")


class _Task(asyncio.Task[Any]):
    """Hashes by its number: sets of tasks are iterated over in the same order each time."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(work, **kwargs)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__

    def __repr__(self) -> str:
        """Short: AnyIO makes one for each scope that is cancelled."""
        return f"<task {self._number}>"


class _Handle(list[Any]):
    """[when, number, callback, arguments, context]: as a list it is made, and compared, quickly."""

    __slots__ = ()

    def cancel(self) -> None:
        """Never call it."""
        self[2] = self[3] = None

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self[2] is None

    def when(self) -> float:
        """When it is called: `time()` then."""
        when: float = self[0]
        return when


class SimulationLoop(asyncio.AbstractEventLoop):
    """`time()` is the virtual clock, in seconds, from `START_S`."""

    def __init__(self, seed: int) -> None:
        self.now = START_S
        self.paused: dict[str, list[_Handle]] = {}
        self.quiet = False
        """Say nothing of errors that nobody looked at."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All that were made: asyncio's own list is of all loops."""
        self._drawn = random.Random(seed).random
        self._ready: list[_Handle] = []
        self._timers: list[_Handle] = []
        self._timer_numbers = itertools.count()
        self._closed = False

    # Callbacks

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        if context is None:  # one that is empty is false
            context = copy_context()
        handle = _Handle((0.0, 0, callback, args, context))
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        if context is None:
            context = copy_context()
        handle = _Handle((self.now + delay, next(self._timer_numbers), callback, args, context))
        heappush(self._timers, handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        if context is None:
            context = copy_context()
        handle = _Handle((when, next(self._timer_numbers), callback, args, context))
        heappush(self._timers, handle)
        return handle

    # Futures and tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, work: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], **kwargs: Any
    ) -> "asyncio.Task[Any]":
        assert asyncio.iscoroutine(work)
        task = _Task(work, len(self.tasks), loop=self, **kwargs)
        self.tasks.append(task)
        return task

    # Running

    def run_until_complete(self, future: Any) -> Any:
        assert not self._closed
        future = asyncio.ensure_future(future, loop=self)
        asyncio.events._set_running_loop(self)
        try:
            self._run_until(future)
        finally:
            asyncio.events._set_running_loop(None)
        return future.result()

    def _run_until(self, future: "asyncio.Future[Any]") -> None:
        timers, is_done = self._timers, future.done
        turns, moved_at = 0, self.now
        while not is_done():
            turn, self._ready = self._ready, []
            if self.paused:
                turn = self._set_aside(turn)
            if not turn:
                self._jump()
            while timers and timers[0][0] <= self.now:
                turn.append(heappop(timers))
            if self.paused:
                turn = self._set_aside(turn)
            if len(turn) > 1:
                self._shuffle(turn)
            for _, _, callback, args, context in turn:
                if callback is not None:
                    context.run(callback, *args)
            turns += 1
            if self.now > moved_at:
                turns, moved_at = 0, self.now
            elif turns > _TURNS_MAX:
                raise AssertionError(f"{_TURNS_MAX} turns, and the clock stands at {self.now:.6f}")

    def _jump(self) -> None:
        """To the next timer that was not cancelled."""
        timers = self._timers
        while timers and timers[0][2] is None:
            heappop(timers)
        if not timers:
            raise AssertionError("every task waits, and no timer will wake one")
        self.now = max(self.now, timers[0][0])

    def _shuffle(self, turn: list[_Handle]) -> None:
        drawn = self._drawn
        for last in range(len(turn) - 1, 0, -1):
            other = int(drawn() * (last + 1))
            turn[last], turn[other] = turn[other], turn[last]

    # Processes

    def pause(self, process: str) -> None:
        """Stop running what belongs to a process."""
        self.paused.setdefault(process, [])

    def resume(self, process: str) -> None:
        """Go on with it."""
        self._ready.extend(self.paused.pop(process, ()))

    def _set_aside(self, turn: list[_Handle]) -> list[_Handle]:
        """Take out what belongs to paused processes, and answer the rest."""
        rest: list[_Handle] = []
        for handle in turn:
            held = self.paused.get(handle[4].get(PROCESS, ""))
            (rest if held is None else held).append(handle)
        return rest

    # What asyncio asks a loop

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio.events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def get_task_factory(self) -> None:
        return None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.quiet:
            log.error("%s", context["message"], exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        """Nobody counts them."""
