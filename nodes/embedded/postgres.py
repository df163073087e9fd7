"""The embedded PostgreSQL: its data folder, settings and readiness.

`postgres` itself is started, not pg_ctl, so that we hold the server's own pid. It listens on TCP only:
the path of a Unix socket may not be longer than about a hundred characters.
"""

import errno
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import ClassVar

from duly.nodes.embedded.errors import EmbeddedError
from duly.nodes.embedded.folder import read_password
from duly.nodes.embedded.leftovers import stop_leftovers
from duly.nodes.embedded.locate import POSTGRES_VARIABLE, find_postgres
from duly.nodes.embedded.process import ServerProcess
from duly.nodes.embedded.programs import make_runnable
from duly.nodes.embedded.server import Server, Setting

_OLDEST_MAJOR = 14
_USER = "duly"
_DATABASE = "postgres"
_INITDB_TIMEOUT_S = 180.0
_READY_LINE = 7
_HEAD = "# Written by Duly at each start; ALTER SYSTEM is the way to change a setting for good.\n"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",  # several nodes, each with a pool
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",  # an accepted task is on disk
    "random_page_cost": "1.1",
    "jit": "off",  # the statements are short
    "max_parallel_workers_per_gather": "0",
    "autovacuum_naptime": "10s",  # a queue's table turns over fast
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB"}


class Postgres(Server):
    """One PostgreSQL in the data folder."""

    title = "PostgreSQL"
    process_names: ClassVar[frozenset[str]] = frozenset({"postgres", "initdb"})
    stop_signal = signal.SIGINT
    """Fast shutdown: sessions are ended, what they had not committed is rolled back."""

    def __init__(self, setting: Setting, name: str = "postgres") -> None:
        super().__init__(setting, name)
        self._password_file = setting.folder / "password"
        found = find_postgres()
        self._programs, self._version = make_runnable(
            found, setting.identity, setting.folder / "bin"
        )
        if int(self._version.partition(".")[0]) < _OLDEST_MAJOR:
            raise EmbeddedError(
                f"{found.main} is PostgreSQL {self._version}; "
                f"{_OLDEST_MAJOR} or newer is needed, set {POSTGRES_VARIABLE} to one"
            )

    @property
    def version(self) -> str:
        """Of the program, such as `18.6`."""
        return self._version

    @property
    def url(self) -> str:
        """`postgresql://` URL of the database, for its superuser."""
        password = self._password_file.read_text()
        return f"postgresql://{_USER}:{password}@127.0.0.1:{self.port}/{_DATABASE}"

    def prepare(self) -> None:
        """Make the data folder at the first start; refuse another major version's."""
        marker = self.data / "PG_VERSION"
        if not marker.exists():
            self._make_data()
        elif not self._password_file.exists():
            raise EmbeddedError(
                f"{self._password_file}, the password of the data in {self.data}, is missing"
            )
        made_by = marker.read_text().strip()
        if made_by != self._version.partition(".")[0]:
            raise EmbeddedError(
                f"{self.data} was made by PostgreSQL {made_by} and {self._programs.main} is "
                f"{self._version}: set {POSTGRES_VARIABLE} to the programs of {made_by}, "
                "or move the data with pg_dump"
            )

    def spawn(self) -> ServerProcess:
        """Start the server on `port`."""
        self._forget_stale_pid()
        chosen = _SETTINGS if self.setting.durable else _SETTINGS | _NOT_DURABLE
        lines = [f"{key} = '{value}'\n" for key, value in {**chosen, "port": self.port}.items()]
        config = self.data / "postgresql.conf"
        config.write_text(_HEAD + "".join(lines))
        return ServerProcess.spawn(
            [self._programs.main, "-D", self._path_for_server(self.data)],
            cwd=self.data,
            log=self.log,
            identity=self.setting.identity,
            die_with_parent=self.setting.die_with_parent,
        )

    def ready(self, process: ServerProcess) -> bool:
        """Whether postmaster.pid, which the server rewrites as it starts, names it and says so."""
        lines = self._pid_file_lines()
        return lines[:1] == [str(process.pid)] and lines[_READY_LINE:][:1] == ["ready"]

    def _make_data(self) -> None:
        """Through a draft: a data folder is either whole or not there."""
        self.setting.progress("PostgreSQL: making the data folder (only at the first start)")
        draft = self.data.with_suffix(".new")
        stop_leftovers(draft, self.process_names, signal.SIGKILL)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        self.setting.identity.give(draft)
        read_password(self._password_file, self.setting.identity)
        stdin = os.open(self._password_file, os.O_RDONLY)
        try:
            self.run_helper(
                [
                    self._programs.helper("initdb"),
                    *("-D", self._path_for_server(draft)),
                    *("-U", _USER, "--auth=scram-sha-256", "--pwfile=/dev/stdin"),
                    *("--encoding=UTF8", "--locale=C"),
                    *(() if self.setting.durable else ("--no-sync",)),
                ],
                cwd=draft,
                stdin=stdin,
                timeout_s=_INITDB_TIMEOUT_S,
            )
        finally:
            os.close(stdin)
        draft.rename(self.data)

    def _path_for_server(self, folder: Path) -> str:
        """How the server, started in `folder`, is to name it.

        PostgreSQL enters its folder anew by this name. Where its user cannot pass through the parents
        (root's, mode 0700), Linux offers a name that leads there without them.
        """
        if self.setting.identity.can_enter(folder.parent):
            return str(folder)
        if sys.platform == "linux":
            return "/proc/self/cwd"
        raise EmbeddedError(
            f"{self.setting.identity.name}, who runs the servers, may not pass through {folder.parent}: "
            "choose another data folder with --data or DULY_HOME (for root the default is /var/lib/duly)"
        )

    def _forget_stale_pid(self) -> None:
        """Remove a dead server's postmaster.pid whose pid now belongs to a stranger.

        PostgreSQL would take a stranger of the same user for a running server, which happens where
        pids start anew, as in a container. Our own leftovers have been stopped before.
        """
        lines = self._pid_file_lines()
        if lines and lines[0].isdecimal() and _exists(int(lines[0])):
            (self.data / "postmaster.pid").unlink()

    def _pid_file_lines(self) -> list[str]:
        try:
            text = (self.data / "postmaster.pid").read_text()
        except FileNotFoundError:
            return []
        return [line.strip() for line in text.splitlines()]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True
