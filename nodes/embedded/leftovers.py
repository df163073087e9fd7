"""Servers that outlived their supervisor: found by the folder they work in, and stopped.

A server runs with its data folder as its working directory from its first instruction on. The kernel
knows that folder, so no pid file can lie: neither after a crash, nor about an equally named folder of
a container, nor about a stranger that has been given a dead server's pid.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

_POLL_S = 0.01


def stop_leftovers(
    folder: Path, names: Collection[str], stop_signal: int, grace_s: float = 10.0
) -> list[int]:
    """Stop the programs called one of `names` that work in `folder`; their process ids.

    The first of each family gets `stop_signal`; what is there after `grace_s` is killed.
    The caller must hold the folder's lock.
    """
    import psutil  # checked by check_requirements, so that this module imports without it

    if not folder.exists():
        return []
    found = [process for process in psutil.process_iter() if _works_in(process, folder, names)]
    pids = {process.pid for process in found}
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)  # a paused one would not hear us
            if process.ppid() not in pids:
                process.send_signal(stop_signal)
    for process in wait_ended(found, grace_s):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_ended(found, grace_s)
    return sorted(pids)


def wait_ended(processes: Iterable[Any], timeout_s: float) -> list[Any]:
    """Those of the psutil processes that still run after `timeout_s`; returns early if none do.

    Not psutil's own wait: for that an orphan runs until the init process fetches its exit code, which
    in a container may be never.
    """
    deadline = time.monotonic() + timeout_s
    alive = [process for process in processes if not _has_ended(process)]
    while alive and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        alive = [process for process in alive if not _has_ended(process)]
    return alive


def _has_ended(process: Any) -> bool:
    import psutil

    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _works_in(process: Any, folder: Path, names: Collection[str]) -> bool:
    """Processes of other users, and those that end while we look, are not ours."""
    import psutil

    try:
        if process.name() not in names:
            return False
        if sys.platform == "linux":
            return os.path.samefile(f"/proc/{process.pid}/cwd", folder)
        return bool(process.cwd() == str(folder))
    except (psutil.Error, OSError):
        return False
