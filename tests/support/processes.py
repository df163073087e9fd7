"""Child processes of a test: output in a file, waited for by line, all gone when the test ends."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio.to_thread
import psutil
from waiting import block_until

from duly.nodes.embedded.leftovers import wait_ended
from duly.nodes.embedded.process import end_with_parent

_MARK = "DULY_TEST_RUN"
_END_S = 60.0


def is_running(pid: int) -> bool:
    """Whether the process still runs; one that only waits to have its exit code fetched does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Child:
    """One child, in a session of its own; its standard output and error go to the file `log`."""

    def __init__(
        self, argv: Sequence[str | Path], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent(),  # noqa: PLW1509 - makes one system call
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._popen.poll()

    @property
    def output(self) -> str:
        """All that it has written so far."""
        return self.log.read_text(errors="replace")

    def wait_for_line(self, pattern: str, timeout_s: float = 60.0) -> re.Match[str]:
        """The first match of `pattern` in the output; AssertionError with the output if none comes."""
        what = f"{pattern!r} in {self.log}"

        def look() -> re.Match[str] | None:
            ended = self.exit_code is not None  # before the look: its last words count
            match = re.search(pattern, self.output, re.MULTILINE)
            if match is None and ended:
                raise AssertionError(f"{what}: ended with {self.exit_code}:\n{self.output[-3000:]}")
            return match

        try:
            return block_until(look, timeout_s, what)
        except AssertionError as error:
            error.add_note(self.output[-3000:])
            raise

    def wait(self, timeout_s: float = _END_S) -> int:
        """The exit code, once it has ended by itself."""
        return self._popen.wait(timeout_s)

    def stop(self, timeout_s: float = _END_S) -> int:
        """SIGTERM, then its exit code; killed, and TimeoutExpired raised, after `timeout_s`."""
        self._popen.terminate()
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise

    def signal_group(self, number: int) -> None:
        """Send a signal as the terminal does, to the child and all in its process group."""
        os.killpg(self.pid, number)

    def pause(self) -> None:
        """Freeze the child alone."""
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused child go on."""
        self._popen.send_signal(signal.SIGCONT)

    def kill9(self) -> None:
        """End the child alone, at once."""
        self._popen.kill()
        self._popen.wait()


class Processes:
    """The children of one test; `close` also ends what they have started and left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._children: list[Child] = []

    def spawn(self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Child:
        """Start a program, with the variables `env` beside our own."""
        log = self._folder / f"child-{len(self._children)}.log"
        marked = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {}), _MARK: self._mark}
        child = Child(argv, log, marked)
        self._children.append(child)
        return child

    def python(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> Child:
        """Start our own interpreter: `python("-m", "duly", "up")`, `python("-c", code)`."""
        return self.spawn([sys.executable, "-P", *arguments], env)

    def close(self) -> None:
        """Kill every child and every process that still carries their mark in its environment."""
        for child in self._children:
            child.kill9()
        orphans = [process for process in psutil.process_iter() if self._is_ours(process)]
        for orphan in orphans:
            orphan.kill()
        wait_ended(orphans, _END_S)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(_MARK) == self._mark)
        except (psutil.Error, OSError):
            return False  # another user's, or just ended


async def line_of(child: Child, pattern: str) -> re.Match[str]:
    """`Child.wait_for_line` for a test in whose loop a node runs: that goes on meanwhile."""
    return await anyio.to_thread.run_sync(child.wait_for_line, pattern)
