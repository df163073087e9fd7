"""Where a handler's function runs: on the loop, in a thread, or in a process of its own."""

import asyncio
import os
import pickle
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Protocol

import anyio.to_process

from duly.nodes.worker.context import Context
from duly.nodes.worker.threads import Threads

Place = Literal["loop", "thread", "process"]


class Next(Protocol):
    """What middleware calls to go on."""

    def __call__(self, ctx: Context, /) -> Awaitable[Any]:
        """Run the attempt: what the handler returns, or raises."""
        ...


Middleware = Callable[[Context, Next], Awaitable[Any]]
"""Is given the attempt and what runs it; returns, or raises, what the attempt comes to."""


class RemoteError(Exception):
    """What a function raised in its process or thread, if that exception cannot come out as it is."""


class Calls:
    """Calls functions wherever they belong, wrapped in the worker's middleware."""

    def __init__(self, threads: Threads, processes: int, middleware: list[Middleware]) -> None:
        """`processes`: most that run at once."""
        self._threads = threads
        self._limiter = anyio.CapacityLimiter(processes)
        self._middleware = middleware

    async def call(self, place: Place, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function does; the first argument is the context of the attempt."""
        ctx, *rest = arguments
        step: Next = partial(self._innermost, place, function, rest)
        for outer in reversed(self._middleware):
            step = partial(_around, outer, step)
        return await step(ctx)

    @property
    def wraps(self) -> bool:
        """Whether there is middleware."""
        return bool(self._middleware)

    async def _innermost(
        self, place: Place, function: Callable[..., Any], rest: list[Any], ctx: Context
    ) -> Any:
        if place == "loop":
            return await function(ctx, *rest)
        if place == "thread":
            return await self._in_thread(partial(function, ctx, *rest))
        # What a script defines is of this module in its processes, and must be found under that name here.
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        # A cancelled attempt's process is killed: it can be stopped in the middle, unlike a thread.
        return await anyio.to_process.run_sync(
            _in_process, function, (ctx, *rest), cancellable=True, limiter=self._limiter
        )

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Wait for a thread, also if cancelled meanwhile: it cannot be stopped."""
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._threads.call(partial(_caught, work), ended.set_result)
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        value, raised = ended.result()
        if isinstance(raised, KeyboardInterrupt):  # nobody's Ctrl-C: that comes to the main thread
            raise RemoteError("KeyboardInterrupt was raised in its thread") from raised
        if raised is not None:
            raise raised
        return value


async def _around(outer: Middleware, inner: Next, ctx: Context) -> Any:
    return await outer(ctx, inner)


def _caught(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - raised again on the loop
        return None, error


def _in_process(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        with _own_descriptors():
            return function(*arguments)
    except BaseException as error:
        # A traceback is not sent with its exception; a note is.
        text = "".join(traceback.format_exception(error))
        error.add_note(f"in the process:\n{text}")
        # The worker would take the one for its own Ctrl-C.
        if isinstance(error, KeyboardInterrupt) or not _is_sendable(error):
            raise RemoteError(f"{type(error).__qualname__}: {error}\n{text}") from None
        raise


def _is_sendable(error: BaseException) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception's own __reduce__ may raise anything
        return False
    return True


@contextmanager
def _own_descriptors() -> Iterator[None]:
    """Keep programs and C code from the pipes to the worker, which are this process's standard input and output."""
    kept = [os.dup(0), os.dup(1)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for standard in (0, 1):
            os.dup2(null, standard)
        yield
    finally:
        for standard, pipe in enumerate(kept):
            os.dup2(pipe, standard)
        for one in (*kept, null):
            os.close(one)
