"""Processes that `duly up` looks after: started, restarted when they die, stopped with it.

A child has a session of its own, so Ctrl-C in the terminal reaches `duly up` alone. It stops by
itself when its standard input closes, so it does not outlive a parent that was killed.
"""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import anyio

from duly.actors.patience import Patience
from duly.nodes.cli.errors import fail

log = logging.getLogger("duly.up")

_STOP_S = 15.0
_HURRIED_STOP_S = 3.0
_STABLE_S = 10.0
_USAGE = 2
"""Exit code of a process that was asked for something wrong: a restart would end the same way."""


class ChildProcess:
    """One `duly …` process."""

    def __init__(self, name: str, args: Sequence[str], environ: Mapping[str, str]) -> None:
        self.name = name
        self._args = [sys.executable, "-P", "-m", "duly", *args, "--until-stdin-closes"]
        self._environ = {**os.environ, **environ}
        self._process: asyncio.subprocess.Process | None = None
        self._patience = Patience(name, log)

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and before it is started."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the process."""
        with anyio.CancelScope(shield=True):  # short; a process we do not know could not be stopped
            self._process = await asyncio.create_subprocess_exec(
                *self._args, env=self._environ, stdin=subprocess.PIPE, start_new_session=True
            )

    async def keep_running(self) -> NoReturn:
        """Start it again whenever it ends, with growing pauses.

        Raises CommandError if it says that it was asked for something wrong.
        """
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            assert self._process is not None
            code = await self._process.wait()
            if code == _USAGE:
                fail(f"{self.name} cannot run as asked", 1)
            if loop.time() - began > _STABLE_S:
                self._patience.worked()
            await asyncio.sleep(self._patience.failed(RuntimeError(f"ended with code {code}")))
            await self.start()

    async def stop(self, hurry: asyncio.Event) -> None:
        """Ask it to stop, again once `hurry` is set; kill it if it takes too long."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        ended = asyncio.create_task(process.wait())
        hurried = asyncio.create_task(hurry.wait())
        try:
            await asyncio.wait(
                {ended, hurried}, timeout=_STOP_S, return_when=asyncio.FIRST_COMPLETED
            )
            if hurried.done() and not ended.done():
                process.terminate()  # a node and a worker take the second one as "at once"
                await asyncio.wait({ended}, timeout=_HURRIED_STOP_S)
            if not ended.done():
                log.warning("%s did not stop in time: killed", self.name)
                process.kill()
            await ended
        finally:
            hurried.cancel()
