"""Shell commands whose processes a test follows."""

import contextlib
import os
from pathlib import Path

import psutil
from waiting import wait_for

WAIT_S = 60.0


class Followed:
    """A command that leaves its process id in a file and goes on for long; with two children."""

    def __init__(self, folder: Path, before: str = "", *, children: bool = True) -> None:
        self._file = folder / "pid"
        note = f"echo $$ > {self._file}.new; mv {self._file}.new {self._file}"
        begin = "sleep 900 & sleep 900 & " if children else ""
        rest = "wait" if children else "sleep 0.1"
        self.text = f"{before} {begin}{note}; while :; do {rest}; done"

    async def group(self) -> int:
        """Its process group, once it has begun."""
        await wait_for(self._file.exists, WAIT_S, "the command to begin")
        return int(self._file.read_text())

    async def gone(self) -> None:
        """Wait until no process of its group is left."""
        group = await self.group()
        await wait_for(lambda: not members(group), WAIT_S, "the end of the group")


def members(group: int) -> list[int]:
    """The processes of a group; one that has ended and whom nobody waits for is none."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
