"""From a store to a folder, day by day, each whole or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal, NamedTuple

from duly.nodes.archive.folder import Entry, File, Folder, locked, name_of
from duly.storage.archive import Archive, Day, GoneError, Kind, Source, Watched
from duly.storage.errors import StoreUnavailableError

_TRIES = 20
_AGAIN_S = 0.5
_READS = 3


class Exported(NamedTuple):
    """What became of a day: its file was `written`, or is as it was (`kept`); or the day was dropped meanwhile."""

    name: str
    what: Literal["written", "kept", "gone"]
    entry: Entry | None


class _ChangedError(Exception):
    """Rows were added to a day, or it was dropped, while it was read."""


async def export(
    store: Archive,
    source: Source,
    to: Path,
    kinds: Sequence[Kind],
    before: date,
    tell: Callable[[Exported], None],
) -> None:
    """Write each day before `before` to the folder `to`, unless its file is there and is right.

    `tell` is told of each. Raises `FolderError`, `StoreUnavailableError`.
    """
    with locked(to, source.id) as folder:
        for kind in kinds:
            for day in await store.days(kind, before):
                tell(await _export(store, source, folder, day))


async def _export(store: Archive, source: Source, folder: Folder, day: Day) -> Exported:
    for _ in range(_READS):
        try:
            watched = await _watch(store, day)
            file = folder.whole(day, watched.life)
            if file is not None and await _note(store, source, day, file.entry):
                return Exported(file.name, "kept", file.entry)
            file = await _write(store, source, folder, day, watched)
        except GoneError:
            return Exported(name_of(day), "gone", None)
        except _ChangedError:
            continue
        if await _note(store, source, day, file.entry):
            return Exported(file.name, "written", file.entry)
    raise StoreUnavailableError(f"{name_of(day)}: rows are added to this day all the time")


async def _watch(store: Archive, day: Day) -> Watched:
    for _ in range(_TRIES):
        watched = await store.watch(day)
        if watched is not None:
            return watched
        await asyncio.sleep(_AGAIN_S)
    raise StoreUnavailableError(f"{name_of(day)}: somebody writes to this day, or has locked it")


async def _write(
    store: Archive, source: Source, folder: Folder, day: Day, watched: Watched
) -> File:
    """Write the file of a day. Raises `_ChangedError`, and leaves what was there, if the day changed meanwhile."""
    with folder.writing(day, watched, source.now) as written:
        async with store.reading(day, watched) as read:
            async for lines in read:
                written.add(lines)
        if not await store.unchanged(day, watched.state):
            raise _ChangedError
    return folder.file(day, watched.life)


async def _note(store: Archive, source: Source, day: Day, entry: Entry) -> bool:
    return await store.exported(day, entry.state, entry.rows, entry.sha256, source.now)
