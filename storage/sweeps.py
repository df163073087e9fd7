"""What is due, told by name: nearly all of it is known to who looks, again and again.

A name is the id and the version of a task, 24 bytes. To read the rows themselves each time took the node more
time than all else that it does for a task before it is due.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from duly.storage.database import Database
from duly.storage.ids import from_bytes
from duly.storage.slots import BEGINNING, Cursor, DueRow, after

Name = tuple[bytes, int]
"""Id and version of a task."""

_NAMES: Final = struct.Struct(">16sq")


class Swept(NamedTuple):
    """What is due by queue; how far those slots were read that may have more; the state of what is set of queues.

    The last one as `queues.state` tells it.
    """

    names: dict[str, list[Name]]
    more: dict[int, Cursor]
    controls: int


async def sweep(db: Database, cursors: dict[int, Cursor], before: datetime, per_slot: int) -> Swept:
    """Pending tasks due before `before`, the first `per_slot` after each slot's cursor.

    From the beginning, a slot may be answered with more than that, as long as there are not more in all.
    """
    if all(cursor is BEGINNING for cursor in cursors.values()):
        limit = per_slot * len(cursors)
        found = _swept(await db.fetch("sweep", list(cursors), before, limit))
        if sum(map(len, found.names.values())) < limit:
            return found
    rows = await db.fetch("sweep_by_slot", *after(cursors), before, per_slot)
    return _swept(rows, per_slot)


def _swept(rows: Iterable[Any], per_slot: int | None = None) -> Swept:
    """`per_slot`: a slot with so many may have more."""
    names: dict[str, list[Name]] = {}
    counts: dict[int, int] = {}
    last: dict[int, Cursor] = {}
    controls = 0
    for slot, queue, packed, last_at, state in rows:
        if state is not None:
            controls = int(state)
            continue
        some = list(_NAMES.iter_unpack(packed))
        names.setdefault(queue, []).extend(some)
        counts[slot] = counts.get(slot, 0) + len(some)
        end = Cursor(last_at, from_bytes(some[-1][0]))
        last[slot] = max(last.get(slot, end), end)
    more = {slot: last[slot] for slot, count in counts.items() if count == per_slot}
    return Swept(names, more, controls)


async def pending(db: Database, names: Sequence[Name]) -> list[DueRow]:
    """The tasks of these names that wait for their time, in due order, whatever their version is now."""
    ids: list[UUID] = [from_bytes(task_id) for task_id, _ in names]
    return [DueRow(*row) for row in await db.fetch("pending_tasks", ids)]


def unknown(
    names: Mapping[str, Sequence[Name]], knows: Callable[[str, Name], bool]
) -> dict[str, list[Name]]:
    """Those that are not known, by queue; no queue without any."""
    left = {
        queue: [name for name in some if not knows(queue, name)] for queue, some in names.items()
    }
    return {queue: some for queue, some in left.items() if some}
