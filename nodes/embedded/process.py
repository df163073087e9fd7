"""One server process and its children: spawn, pause, resume, kill, stop.

A server gets its own session, so that Ctrl-C in the terminal reaches our supervisor and not the server,
and writes to a log file, never to a pipe that a dead supervisor would leave broken.
PostgreSQL's children have sessions of their own: signals for all of it are sent one by one.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from duly.nodes.embedded.identity import Identity

_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
_LOG_LIMIT_BYTES = 16 * 1024 * 1024
_PR_SET_PDEATHSIG = 1


class ServerProcess:
    """A running child process with its own children."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    @classmethod
    def spawn(
        cls,
        argv: Sequence[str | Path],
        *,
        cwd: Path,
        log: Path,
        identity: Identity,
        stdin: int = subprocess.DEVNULL,
        die_with_parent: bool = False,
    ) -> Self:
        """Start `argv` in `cwd`, its output appended to `log`.

        `cwd` is entered before the user is switched, so the server's user need not be able to reach it.
        `die_with_parent` has the kernel kill the process with us: only on Linux, and only if called by
        the main thread, since the kernel goes by the thread.
        """
        if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
            log.replace(log.with_name(f"{log.name}.1"))
        with open(log, "ab", opener=_private) as output:
            return cls(
                subprocess.Popen(
                    argv,
                    cwd=cwd,
                    env=_ENVIRONMENT,
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    # Threads are no danger to it: it makes one system call and takes no lock.
                    preexec_fn=end_with_parent() if die_with_parent else None,  # noqa: PLW1509
                    **identity.popen_options(),
                )
            )

    @property
    def pid(self) -> int:
        """Process id of the server itself."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._popen.poll()

    def pause(self) -> None:
        """Freeze the server with its children, as an overloaded machine or a lost network would."""
        self._signal_tree(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal_tree(signal.SIGCONT)

    def kill9(self) -> None:
        """End the server with its children at once, with no chance to tidy up."""
        self._signal_tree(signal.SIGKILL)
        self._popen.wait()

    def stop(self, stop_signal: int, timeout_s: float) -> None:
        """Ask the server to end; kill it after `timeout_s`. Does nothing if it has ended."""
        self.resume()  # a paused server would not hear us
        self._popen.send_signal(stop_signal)
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()

    def _signal_tree(self, number: int) -> None:
        import psutil  # checked by check_requirements, so that this module imports without it

        if self.exit_code is not None:
            return
        self._popen.send_signal(signal.SIGSTOP)  # no children are born while we look
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        for child in children:
            try:
                child.send_signal(number)
            except psutil.NoSuchProcess:
                continue  # it had been ending already
        self._popen.send_signal(number)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # PostgreSQL logs statements, with their data, that fail


def end_with_parent() -> Callable[[], None] | None:
    """A `preexec_fn` after which the kernel kills the child with us, where that can be had."""
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: the child only makes the call
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
