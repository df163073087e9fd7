"""What PostgreSQL and Valkey have in common: start until ready, stop, restart, pause, kill.

Each class says how its server is set up, spawned, and known to be ready. All calls block; the waits
among them end early with StartError once `closing` is set.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from duly.nodes.embedded import ports
from duly.nodes.embedded.errors import StartError
from duly.nodes.embedded.identity import Identity
from duly.nodes.embedded.leftovers import stop_leftovers
from duly.nodes.embedded.process import ServerProcess

_POLL_S = 0.01
_LOG_TAIL_BYTES = 3000


@dataclass(frozen=True)
class Setting:
    """Where and how the servers of one data folder run."""

    folder: Path
    """The data folder; exists, is absolute, free of links, and locked by us."""
    identity: Identity
    durable: bool = True
    """False: a crash of the machine (not of a process) may lose data. For tests."""
    die_with_parent: bool = False
    """The kernel kills the servers with us, see `ServerProcess.spawn`. For tests."""
    progress: Callable[[str], None] = lambda line: None
    """Told what takes its time, a line each."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set to give up waiting for a start."""


class Server(ABC):
    """One server in `folder/name`, logging to `folder/name.log`."""

    title: ClassVar[str]
    process_names: ClassVar[frozenset[str]]
    stop_signal: ClassVar[int]

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting = setting
        self.data = setting.folder / name
        self.log = setting.folder / f"{name}.log"
        self._port_record = setting.folder / f"{name}.port"
        self._port = 0
        self._process: ServerProcess | None = None

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1; 0 before the first start."""
        return self._port

    @property
    def process(self) -> ServerProcess:
        """The server's process, running or ended. Raises StartError before the first start."""
        if self._process is None:
            raise StartError(f"{self.title} has not been started")
        return self._process

    @property
    def alive(self) -> bool:
        """Whether the process runs; a paused one counts."""
        return self._process is not None and self._process.exit_code is None

    def start(self, timeout_s: float = 60.0) -> None:
        """Set up what is missing, start, and return once connections are accepted.

        Takes the port of the last start if it is free. Raises EmbeddedError.
        """
        began = time.monotonic()
        self.prepare()
        for pid in stop_leftovers(self.data, self.process_names, self.stop_signal):
            self.setting.progress(f"{self.title}: stopped process {pid}, left over in {self.data}")
        while True:
            self._port = ports.choose(self._port_record)
            try:
                self._launch(timeout_s)
                break
            except StartError:
                if ports.is_free(self._port) or self.setting.closing.is_set():
                    raise  # for any reason but that somebody was faster to take the port
        took_s = time.monotonic() - began
        self.setting.progress(
            f"{self.title} {self.version} on 127.0.0.1:{self.port}, {took_s:.1f} s"
        )

    def restart(self, timeout_s: float = 60.0) -> None:
        """Start again, on the same port, a server that has ended. Raises StartError."""
        stop_leftovers(self.data, self.process_names, self.stop_signal)
        self._launch(timeout_s)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop cleanly; kill after `timeout_s`. Does nothing if it does not run."""
        if self._process is not None:
            self._process.stop(self.stop_signal, timeout_s)

    def pause(self) -> None:
        """Freeze the server with its children (for fault tests)."""
        self.process.pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self.process.resume()

    def kill9(self) -> None:
        """End the server with its children at once (for fault tests)."""
        self.process.kill9()

    @property
    @abstractmethod
    def version(self) -> str:
        """Of the program, such as `18.6`."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the data folder ready to be served."""

    @abstractmethod
    def spawn(self) -> ServerProcess:
        """Start the server on `port`."""

    @abstractmethod
    def ready(self, process: ServerProcess) -> bool:
        """Whether the server of this process accepts connections."""

    def _launch(self, timeout_s: float) -> None:
        log_start = self.log.stat().st_size if self.log.exists() else 0
        try:
            self._process = process = self.spawn()
        except OSError as error:
            raise StartError(f"{self.title} cannot be started: {error}") from error
        self._wait(process, lambda: self.ready(process), timeout_s, log_start)

    def run_helper(
        self, argv: Sequence[str | Path], *, cwd: Path, stdin: int, timeout_s: float
    ) -> None:
        """Run one of the server's own tools to its end. Raises StartError if it fails."""
        log_start = self.log.stat().st_size if self.log.exists() else 0
        process = ServerProcess.spawn(
            argv, cwd=cwd, log=self.log, identity=self.setting.identity, stdin=stdin
        )
        self._wait(process, lambda: process.exit_code == 0, timeout_s, log_start)

    def _wait(
        self,
        process: ServerProcess,
        done: Callable[[], bool],
        timeout_s: float,
        log_start: int,
    ) -> None:
        """Until `done`; else leave nothing running and raise StartError with the log's tail."""
        deadline = time.monotonic() + timeout_s
        while True:
            code = process.exit_code  # before `done`, which for a helper asks for code 0
            if done():
                return
            if code is not None:
                problem = f"ended with code {code}"
            elif self.setting.closing.wait(_POLL_S):
                problem = "was told to stop while it started"
            elif time.monotonic() > deadline:
                problem = f"was not ready after {timeout_s:g} s"
            else:
                continue
            process.kill9()
            raise StartError(f"{self.title} {problem}{self._log_since(log_start)}")

    def _log_since(self, start: int) -> str:
        with self.log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(start if start <= size else 0, size - _LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").strip()
        return f"; {self.log} says:\n{tail}" if tail else f"; see {self.log}"
