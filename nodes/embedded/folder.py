"""The data folder: where it is by default, making it, and who may use it.

The lock is a kernel lock on an open file, so it is gone at the moment its holder is, however it died.
"""

import os
import secrets
import sys
from pathlib import Path

from duly.nodes.embedded.errors import EmbeddedError, FolderInUseError
from duly.nodes.embedded.identity import Identity


def default_data_dir() -> Path:
    """`$DULY_HOME`; else for root `/var/lib/duly`, for others `duly` in the XDG state folder."""
    if home := os.environ.get("DULY_HOME"):
        return Path(home).expanduser()
    if sys.platform != "win32" and os.geteuid() == 0:
        return Path("/var/lib/duly")  # root's home is closed to the user that the servers run as
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "duly"


def make_folder(path: Path) -> Path:
    """Make the data folder if need be; return its real path. Raises EmbeddedError."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True)
            path.chmod(0o711)  # the servers' user passes through; the folders inside are closed
        return path.resolve()
    except OSError as error:
        raise EmbeddedError(f"cannot make the data folder {path}: {error}") from error


class FolderLock:
    """Exclusive use of one data folder, from `take` to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def take(self) -> None:
        """Raises FolderInUseError if another process has it, EmbeddedError if it is not writable."""
        import fcntl  # not on Windows, where the module must still import

        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise EmbeddedError(f"cannot use the data folder: {error}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode() or "unknown"
            os.close(fd)
            raise FolderInUseError(
                f"{self._path.parent} is in use by process {holder}: "
                "stop it first, or choose another folder with --data or DULY_HOME"
            ) from None
        os.truncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let others in. Does nothing if the lock is not held."""
        if self._fd is not None:
            os.close(self._fd)  # which unlocks; the file stays, so that no two lock different files
            self._fd = None


def read_password(path: Path, identity: Identity) -> str:
    """The servers' password; a random one is made, mode 0600, when the file is not there."""
    if not path.exists():
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(24))
            file.flush()
            os.fsync(fd)
        identity.give(draft)  # initdb, which is not root, reads it
        draft.rename(path)
    return path.read_text()
