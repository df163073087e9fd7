"""The folder of an archive: a file for each day and kind, and `manifest.json`, which says what they are."""

import fcntl
import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from duly.nodes.archive.writing import PART, Written, lines_file, write_whole
from duly.storage.archive import Day, Kind, Watched

MANIFEST: Final = "manifest.json"
SUFFIX: Final = ".jsonl.gz"
_LOCK: Final = ".lock"
_FORMAT: Final = 1


class FolderError(Exception):
    """The folder, or a file in it, is not what it should be, or cannot be written; the text says which and why."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds: all rows of a day of one kind, as of some instant."""

    kind: Kind
    day: date
    """In UTC."""
    rows: int
    bytes: int
    """Of the compressed file."""
    sha256: str
    """Of the compressed file, in hex."""
    life: UUID
    """Of the day in the store; another one if it was dropped, and then rows of it came after all."""
    state: UUID
    """Of the day in the store; another one if rows were added since."""
    exported_at: datetime


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the folder."""

    format: int
    store: UUID
    """Of which store the days are."""
    files: dict[str, Entry]


class File(NamedTuple):
    """A file of the archive."""

    name: str
    entry: Entry


def name_of(day: Day, number: int = 1) -> str:
    """Name of a file of a day; a second one is rare."""
    return f"{day.kind}-{day.day.isoformat()}{'' if number == 1 else f'.{number}'}{SUFFIX}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest; None if there is none. Raises `FolderError` if it cannot be understood."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FolderError(_text(path, error)) from error
    try:
        version = msgspec.json.decode(data, type=dict[str, msgspec.Raw])["format"]
        if bytes(version) != b"%d" % _FORMAT:
            raise FolderError(f"{path} is of format {bytes(version).decode()}: upgrade duly")
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise FolderError(f"{path} is not the manifest of an archive: {error}") from error


def hash_file(path: Path) -> tuple[int, str]:
    """(bytes, SHA-256) of a file. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return os.fstat(file.fileno()).st_size, digest


class Folder:
    """A folder that is being written; made by `locked`."""

    def __init__(self, path: Path, store: UUID) -> None:
        self._path = path
        found = read_manifest(path)
        if found is not None and found.store != store:
            raise FolderError(
                f"{path} is the archive of another store: give each a folder of its own"
            )
        self._files = dict(found.files) if found else {}
        self._store = store
        if found is None:
            self._save()
        for part in path.glob(f".*{PART}"):  # what an end by force has left
            part.unlink()

    def whole(self, day: Day, life: UUID) -> File | None:
        """The file of a day; None if there is none, or it is not as it was written."""
        name = self._name(day, life)
        entry = self._files.get(name)
        try:
            if entry is None or hash_file(self._path / name) != (entry.bytes, entry.sha256):
                return None
        except FileNotFoundError:
            return None
        return File(name, entry)

    def file(self, day: Day, life: UUID) -> File:
        """The file of a day that was written. Raises KeyError for another."""
        name = self._name(day, life)
        return File(name, self._files[name])

    @contextmanager
    def writing(self, day: Day, watched: Watched, now: datetime) -> Iterator[Written]:
        """Write the file of a day; after the block it is there, whole, and in the manifest."""
        name = self._name(day, watched.life)
        with lines_file(self._path / name) as written:
            yield written
        self._files[name] = Entry(
            kind=day.kind,
            day=day.day,
            rows=written.rows,
            bytes=written.bytes,
            sha256=written.sha256,
            life=watched.life,
            state=watched.state,
            exported_at=now,
        )
        self._save()

    def _name(self, day: Day, life: UUID) -> str:
        """A day that was dropped, and of which rows came after all, has a file for each of its lives."""
        names = (name_of(day, number) for number in itertools.count(1))
        return next(
            name for name in names if name not in self._files or self._files[name].life == life
        )

    def _save(self) -> None:
        files = dict(sorted(self._files.items()))
        manifest = Manifest(format=_FORMAT, store=self._store, files=files)
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        write_whole(self._path / MANIFEST, data + b"\n")


@contextmanager
def locked(path: Path, store: UUID) -> Iterator[Folder]:
    """The folder `path`, made if only its last part is missing; no other export writes to it meanwhile.

    Raises `FolderError`, also for what the system says while the folder is written.
    """
    try:
        path.mkdir(exist_ok=True)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Folder(path, store)
        finally:
            os.close(lock)
    except BlockingIOError:
        raise FolderError(f"another export is writing to {path}") from None
    except OSError as error:
        raise FolderError(_text(path, error)) from error


def _text(path: Path, error: OSError) -> str:
    return f"{error.filename or path}: {error.strerror or error}"
