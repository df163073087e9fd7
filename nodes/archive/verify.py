"""Whether the files of an archive are what its manifest says."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from duly.nodes.archive.folder import SUFFIX, Entry, FolderError, Manifest, hash_file, read_manifest

_GZIP = 31
_CHUNK = 1 << 20


class Verified(NamedTuple):
    """A file, and what is wrong with it; None: nothing."""

    name: str
    wrong: str | None


def manifest(folder: Path) -> Manifest:
    """The manifest of an archive. Raises `FolderError` if `folder` is none."""
    found = read_manifest(folder)
    if found is None:
        raise FolderError(f"{folder} is no archive: it has no manifest.json")
    return found


def verify(folder: Path) -> Iterator[Verified]:
    """Look at each file: its SHA-256, and how many rows it holds. And for files that nobody knows of."""
    files = manifest(folder).files
    for name, entry in files.items():
        try:
            yield Verified(name, _wrong(folder / name, entry))
        except OSError as error:
            yield Verified(name, error.strerror or str(error))
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if path.name not in files:
            yield Verified(path.name, "not in the manifest: the next export writes it again")


def _wrong(path: Path, entry: Entry) -> str | None:
    size, sha256 = hash_file(path)
    if size != entry.bytes:
        return f"{size} bytes, not {entry.bytes}"
    if sha256 != entry.sha256:
        return "its SHA-256 is another one"
    try:
        rows = _count(path)
    except (zlib.error, EOFError) as error:
        return f"not a whole gzip file: {error}"
    return None if rows == entry.rows else f"{rows} rows, not {entry.rows}"


def _count(path: Path) -> int:
    unpacker, rows = zlib.decompressobj(_GZIP), 0
    with path.open("rb") as file:
        while packed := file.read(_CHUNK):
            while packed:
                rows += unpacker.decompress(packed, _CHUNK).count(b"\n")
                packed = unpacker.unconsumed_tail
    if not unpacker.eof:
        raise EOFError("it ends too early")
    return rows
