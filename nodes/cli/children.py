"""Processes that `duly up` looks after: started, restarted when they die, stopped with it."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from duly.actors.patience import Patience

log = logging.getLogger("duly.up")

_STOP_S = 15.0
_STABLE_S = 10.0


class ChildProcess:
    """One `duly …` process. It stops by itself when its standard input closes, so it does not
    outlive a parent that was killed."""

    def __init__(self, name: str, args: Sequence[str], environ: Mapping[str, str]) -> None:
        self.name = name
        self._args = [sys.executable, "-P", "-m", "duly", *args, "--until-stdin-closes"]
        self._environ = {**os.environ, **environ}
        self._process: asyncio.subprocess.Process | None = None
        self._patience = Patience(name, log)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the process."""
        self._process = await asyncio.create_subprocess_exec(
            *self._args, env=self._environ, stdin=subprocess.PIPE, start_new_session=True
        )

    async def keep_running(self) -> None:
        """Start it again whenever it ends, with growing pauses."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            assert self._process is not None
            code = await self._process.wait()
            if loop.time() - began > _STABLE_S:
                self._patience.worked()
            await asyncio.sleep(self._patience.failed(RuntimeError(f"ended with code {code}")))
            await self.start()

    async def stop(self) -> None:
        """Ask it to stop; kill it if it takes too long."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            log.warning("%s did not stop within %g s: killed", self.name, _STOP_S)
            process.kill()
            await process.wait()
