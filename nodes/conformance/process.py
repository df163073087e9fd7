"""The worker's process, if the kit is told how to start it."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from duly.nodes.embedded.process import end_with_parent


class WorkerProcess:
    """Starts the worker, in a session of its own, and ends it, as often as needed."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], output: IO[bytes] | int
    ) -> None:
        """`env`: variables beside our own; `output`: where what it writes goes."""
        self._command = list(command)
        self._env = {**os.environ, **env}
        self._output = output
        self._process: asyncio.subprocess.Process | None = None
        self.stopping = False
        """It was sent SIGTERM, so its end is no surprise."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or before its start; negative: the signal that ended it."""
        return None if self._process is None else self._process.returncode

    @property
    def runs(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it. Raises OSError if the program cannot be run."""
        self.stopping = False
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._env, stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=self._output, start_new_session=True,
            preexec_fn=end_with_parent(),
        )  # fmt: skip

    def terminate(self) -> None:
        """Send SIGTERM, as at a clean stop."""
        assert self._process is not None
        self.stopping = True
        self._process.terminate()

    async def kill(self) -> None:
        """End it at once, and all that it has started."""
        if self._process is None:
            return
        self.stopping = True
        with contextlib.suppress(ProcessLookupError):  # all of it has ended already
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
