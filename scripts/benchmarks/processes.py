"""Processes that a benchmark starts, and the waits for what they do."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

SCRIPTS = Path(__file__).parent.parent
"""Where the package `benchmarks` is found."""

_STOP_S = 20.0


async def spawn(
    command: Sequence[str | Path], environ: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start it in a session of its own, in the folder of the scripts.

    Its input is a pipe that closes when we die; what it prints is dropped, but its errors are not.
    """
    return await asyncio.create_subprocess_exec(
        *command,
        env=dict(environ),
        cwd=SCRIPTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ask it to end, then kill it and what it started."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_S)
    with suppress(ProcessLookupError):  # nobody is left in its session
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run it on uvloop to its end; SIGTERM cancels it as Ctrl-C does, so that it cleans up."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return uvloop.run(cancellable())


async def until(
    condition: Callable[..., Awaitable[T | None]],
    *args: object,
    timeout_s: float = 120.0,
    every_s: float = 0.05,
) -> T:
    """Ask again and again until the answer is a true one. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while True:
            if value := await condition(*args):
                return value
            await asyncio.sleep(every_s)
