"""Embedded servers for tests: quick, thrown away, and dead when the test run is dead."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from duly.nodes.embedded import EmbeddedServers
from duly.nodes.embedded.leftovers import stop_leftovers
from duly.nodes.embedded.postgres import Postgres
from duly.nodes.embedded.valkey import Valkey

_MEMORY_DISK = Path("/dev/shm")
_ROOM_BYTES = 4 * 1024**3

ServerFactory = Callable[[], EmbeddedServers]


def new_folder() -> Path:
    """A temporary folder, not pytest's: the unprivileged user that root starts servers as gets in."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-", dir=_memory_disk()))
    folder.chmod(0o711)
    return folder


def _memory_disk() -> Path | None:
    """Where a thousand small files are made in no time, if the system has it and room in it."""
    if not _MEMORY_DISK.is_dir() or not os.access(_MEMORY_DISK, os.W_OK):
        return None
    about = os.statvfs(_MEMORY_DISK)
    roomy = about.f_bavail * about.f_frsize > _ROOM_BYTES
    return _MEMORY_DISK if roomy and not about.f_flag & os.ST_NOEXEC else None


def remove_folder(folder: Path) -> None:
    """Kill the servers that work in `folder`, then remove it."""
    for name in ("postgres", "postgres.new", "standby", "valkey"):
        for kind in (Postgres, Valkey):
            stop_leftovers(folder / name, kind.process_names, signal.SIGKILL)
    shutil.rmtree(folder)


def make_template() -> Path:
    """A folder whose servers have been started once and stopped: copying it is quicker than initdb."""
    folder = new_folder()
    with EmbeddedServers(folder, durable=False, die_with_parent=True):
        return folder


def copy_template(template: Path, folder: Path) -> None:
    """Fill `folder` as `template` is, owners included; a start there picks ports of its own."""
    for name in ("password", "postgres", "valkey"):
        subprocess.run(["cp", "-a", template / name, folder], check=True, timeout=60)


def new_servers(template: Path) -> EmbeddedServers:
    """Started servers in a new folder; end them with `discard`."""
    folder = new_folder()
    servers = EmbeddedServers(folder, durable=False, die_with_parent=True)
    try:
        copy_template(template, folder)
        servers.start()
    except BaseException:
        discard(servers)
        raise
    return servers


def discard(servers: EmbeddedServers) -> None:
    """Stop the servers and remove their folder."""
    servers.stop()
    remove_folder(servers.data)
