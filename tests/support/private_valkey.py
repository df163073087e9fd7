"""A Valkey server (or whatever `DULY_VALKEY_BIN` names) of one test's own, to be stopped, paused, killed and started again.

It can be started as a Sentinel too.
"""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import block_until

from duly.nodes.embedded.locate import find_valkey
from duly.nodes.embedded.process import end_with_parent


class PrivateValkey:
    """One server process on a port of its own; without persistence, unless `options` say so."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its URL, the same after a restart."""
        return f"redis://127.0.0.1:{self._port}/0"

    @property
    def port(self) -> int:
        """Its port, the same after a restart."""
        return self._port

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    find_valkey().main,
                    *self._options,
                    *("--port", str(self._port), "--bind", "127.0.0.1", "--save", ""),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
                preexec_fn=end_with_parent(),  # noqa: PLW1509 - makes one system call
            )
        block_until(self._answers, 60, "an answer of the private server", poll_s=0.01)

    def stop(self) -> None:
        """Kill it; what it has not written is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it from running; connections stay open and hang."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def several(folder: Path, count: int) -> Iterator[list[PrivateValkey]]:
    """So many servers that know nothing of each other, and have just started."""
    servers: list[PrivateValkey] = []
    try:
        for n in range(count):
            (folder / str(n)).mkdir()
            servers.append(PrivateValkey(folder / str(n)))
            servers[-1].start()
        yield servers
    finally:
        for server in servers:
            server.stop()
