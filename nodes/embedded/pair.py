"""Both servers of one data folder under one supervisor: started together, stopped together."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio
import anyio.to_thread

from duly.nodes.embedded.errors import EmbeddedError, StartError
from duly.nodes.embedded.folder import FolderLock, make_folder
from duly.nodes.embedded.identity import server_identity
from duly.nodes.embedded.postgres import Postgres
from duly.nodes.embedded.requirements import check_requirements
from duly.nodes.embedded.server import Server, Setting
from duly.nodes.embedded.valkey import Valkey

logger = logging.getLogger(__name__)


class EmbeddedServers:
    """PostgreSQL and Valkey in the folder `data`, from `start` to `stop`; one object runs once.

    Use it as a context manager, plain or async. What was written survives a kill -9 of everything:
    servers that a killed supervisor left over in this folder are stopped by the next start.

    `durable=False` trades safety against a crash of the machine for speed, and `die_with_parent=True`
    has the kernel (Linux) kill the servers with us, if the main thread starts them: both for tests.
    `progress` is told, a line each, what is done; by default the lines are logged.
    """

    def __init__(
        self,
        data: Path,
        *,
        durable: bool = True,
        die_with_parent: bool = False,
        progress: Callable[[str], None] = logger.info,
    ) -> None:
        self.data = data
        self._durable = durable
        self._die_with_parent = die_with_parent
        self._progress = progress
        self._closing = threading.Event()
        self._busy = threading.Lock()
        self._lock: FolderLock | None = None
        self._postgres: Postgres | None = None
        self._valkey: Valkey | None = None

    @property
    def postgres(self) -> Postgres:
        """The PostgreSQL server. Raises StartError before the start."""
        return _started(self._postgres)

    @property
    def valkey(self) -> Valkey:
        """The Valkey server. Raises StartError before the start."""
        return _started(self._valkey)

    @property
    def database_url(self) -> str:
        """`postgresql://` URL with the password."""
        return self.postgres.url

    @property
    def redis_url(self) -> str:
        """`redis://` URL with the password."""
        return self.valkey.url

    def start(self) -> None:
        """Start both and return when both accept connections. Raises EmbeddedError."""
        with self._busy:
            self._refuse_if_stopped()
            try:
                self._start()
            except BaseException:
                self._stop()
                raise

    def stop(self) -> None:
        """Stop both cleanly and free the folder; a start under way is given up. May be repeated."""
        self._closing.set()
        with self._busy:
            self._stop()

    def revive(self, server: Server) -> None:
        """Start `server` again, on its port, unless it runs. Raises StartError if it fails."""
        with self._busy:
            self._refuse_if_stopped()
            if not server.alive:
                server.restart()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await anyio.to_thread.run_sync(self.start, abandon_on_cancel=True)
        except BaseException:
            await self._stop_whatever_happens()  # cancelled: the thread still starts servers
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop_whatever_happens()

    async def _stop_whatever_happens(self) -> None:
        with anyio.CancelScope(shield=True):  # bounded: a server that does not end is killed
            await anyio.to_thread.run_sync(self.stop)

    def _refuse_if_stopped(self) -> None:
        if self._closing.is_set():
            raise StartError("the embedded servers have been stopped")

    def _start(self) -> None:
        check_requirements()
        folder = make_folder(self.data)
        lock = FolderLock(folder / "lock")
        lock.take()
        self._lock = lock
        try:
            setting = Setting(
                folder=folder,
                identity=server_identity(folder / "postgres"),
                durable=self._durable,
                die_with_parent=self._die_with_parent,
                progress=self._progress,
                closing=self._closing,
            )
            self._postgres = Postgres(setting)
            self._valkey = Valkey(setting)
            self._postgres.start()
            self._valkey.start()
        except OSError as error:
            raise EmbeddedError(f"cannot use the data folder {folder}: {error}") from error

    def _stop(self) -> None:
        for server in (self._valkey, self._postgres):
            if server is not None:
                server.stop()
        if self._lock is not None:
            self._lock.release()


_AnyServer = TypeVar("_AnyServer", bound=Server)


def _started(server: _AnyServer | None) -> _AnyServer:
    if server is None:
        raise StartError("the embedded servers have not been started")
    return server
