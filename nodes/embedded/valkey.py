"""The embedded Valkey (or Redis): append-only persistence, a password, nothing evicted."""

import contextlib
import os
import signal
import socket
from typing import ClassVar

from duly.nodes.embedded.errors import EmbeddedError
from duly.nodes.embedded.folder import read_password
from duly.nodes.embedded.locate import VALKEY_VARIABLE, find_valkey
from duly.nodes.embedded.process import ServerProcess
from duly.nodes.embedded.programs import make_runnable
from duly.nodes.embedded.server import Server, Setting

_OLDEST = (6, 2)
_PROBE_TIMEOUT_S = 1.0
_SETTINGS = {
    "bind": "127.0.0.1",
    "save": '""',  # no snapshots: the append-only file is the one record
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",  # a lease or a stream must not vanish to make room
    "daemonize": "no",
}
_NOT_DURABLE = {"appendfsync": "no"}


class Valkey(Server):
    """One Valkey in the data folder."""

    title = "Valkey"
    process_names: ClassVar[frozenset[str]] = frozenset({"valkey-server", "redis-server"})
    stop_signal = signal.SIGTERM

    def __init__(self, setting: Setting, name: str = "valkey") -> None:
        super().__init__(setting, name)
        found = find_valkey()
        self._programs, self._version = make_runnable(
            found, setting.identity, setting.folder / "bin"
        )
        self._password_file = setting.folder / "password"
        if tuple(map(int, self._version.split(".")[:2])) < _OLDEST:
            raise EmbeddedError(
                f"{found.main} is Redis {self._version}; Redis 6.2 or newer, or Valkey, "
                f"is needed: set {VALKEY_VARIABLE} to one"
            )

    @property
    def version(self) -> str:
        """Of the program, such as `9.1.2`."""
        return self._version

    @property
    def url(self) -> str:
        """`redis://` URL of database 0."""
        return f"redis://:{self._password()}@127.0.0.1:{self.port}/0"

    def prepare(self) -> None:
        """Make the data folder at the first start."""
        if not self.data.exists():
            self.data.mkdir(mode=0o700)
            self.setting.identity.give(self.data)

    def spawn(self) -> ServerProcess:
        """Start the server on `port`.

        The settings go in by a pipe: a command line would show the password to every user, and a file
        would have to be in reach of the server's user.
        """
        chosen = _SETTINGS if self.setting.durable else _SETTINGS | _NOT_DURABLE
        settings = {**chosen, "port": self.port, "requirepass": self._password()}
        stdin, writer = os.pipe()
        try:
            with open(writer, "w") as pipe:  # short enough for the pipe's buffer
                pipe.writelines(f"{key} {value}\n" for key, value in settings.items())
            return ServerProcess.spawn(
                [self._programs.main, "-"],
                cwd=self.data,
                log=self.log,
                identity=self.setting.identity,
                stdin=stdin,
                die_with_parent=self.setting.die_with_parent,
            )
        finally:
            os.close(stdin)

    def _password(self) -> str:
        return read_password(self._password_file, self.setting.identity)

    def ready(self, process: ServerProcess) -> bool:
        """Whether a server that takes our password answers; one that still loads its file does not."""
        with contextlib.suppress(OSError):
            address = ("127.0.0.1", self.port)
            with socket.create_connection(address, _PROBE_TIMEOUT_S) as connection:
                connection.sendall(f"AUTH {self._password()}\r\nPING\r\nQUIT\r\n".encode())
                with connection.makefile("rb") as replies:
                    return replies.readlines(64)[:2] == [b"+OK\r\n", b"+PONG\r\n"]
        return False
