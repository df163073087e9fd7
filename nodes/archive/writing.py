"""Files that are there only when they are whole: written under another name, synced, then renamed."""

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEVEL = 6
_GZIP = 31  # zlib's window for gzip, whose header then has neither a name nor a time

PART = ".part"
"""Ends the name of a file that is being written; it begins with a dot."""


class Written:
    """A gzip file of lines that is being written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._hash = hashlib.sha256()
        self.rows = 0
        self.bytes = 0
        """Of the compressed file, so far."""

    @property
    def sha256(self) -> str:
        """Of the compressed file, so far; in hex."""
        return self._hash.hexdigest()

    def add(self, lines: list[str]) -> None:
        """Add these lines, given without their ends."""
        self.rows += len(lines)
        self._write(self._packer.compress("".join(f"{line}\n" for line in lines).encode()))

    def end(self) -> None:
        """There are no more lines."""
        self._write(self._packer.flush())

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self.bytes += len(data)
        _write(self._descriptor, data)


@contextmanager
def lines_file(path: Path) -> Iterator[Written]:
    """Write a compressed file, which is at `path` once the block has ended well. Raises OSError."""
    with _whole(path) as descriptor:
        written = Written(descriptor)
        yield written
        written.end()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or replace it: whoever reads it finds the old one or the new one. Raises OSError."""
    with _whole(path) as descriptor:
        _write(descriptor, data)


@contextmanager
def _whole(path: Path) -> Iterator[int]:
    part = path.with_name(f".{path.name}{PART}")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
