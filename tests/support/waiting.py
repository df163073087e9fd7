"""Wait for a condition with a deadline, instead of sleeping and hoping."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")

_POLL_S = 0.02


@overload
async def wait_for(
    condition: Callable[[], Awaitable[T | None]],
    timeout_s: float,
    what: str,
    *,
    ignore: tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> T: ...


@overload
async def wait_for(
    condition: Callable[[], T | None],
    timeout_s: float,
    what: str,
    *,
    ignore: tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> T: ...


async def wait_for(
    condition: Callable[[], Any],
    timeout_s: float,
    what: str,
    *,
    ignore: tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> Any:
    """The first true value of `condition` (plain or async), which is asked every `poll_s`.

    Exceptions of the types `ignore` count as "not yet". Raises AssertionError, naming `what` and the
    last value or exception, after `timeout_s`, also if the condition itself hangs.
    """
    last: Any = "nothing yet"
    with anyio.move_on_after(timeout_s):
        while True:
            try:
                value = condition()
                value = await value if inspect.isawaitable(value) else value
            except ignore as error:
                last = error
            else:
                if value:
                    return value
                last = value
            await anyio.sleep(poll_s)
    raise AssertionError(f"{what}: not within {timeout_s:g} s; last: {last!r}")


def block_until(
    condition: Callable[[], T | None],
    timeout_s: float,
    what: str,
    *,
    ignore: tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> T:
    """`wait_for` for plain tests: blocks the thread, and cannot interrupt a condition that hangs."""
    deadline = time.monotonic() + timeout_s
    last: Any = "nothing yet"
    while True:
        try:
            if value := condition():
                return value
            last = value
        except ignore as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s; last: {last!r}")
        time.sleep(poll_s)
