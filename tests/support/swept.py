"""What the statement `sweep` answers, of rows held in memory."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID


class Found(NamedTuple):
    """A due task."""

    queue: str
    slot: int
    next_run_at: datetime
    id: UUID
    version: int


def swept(pages: Iterable[Sequence[Found]], controls: int) -> list[dict[str, Any]]:
    """`pages`: of each slot, in order. `controls`: the state of what is set of queues."""
    rows: list[dict[str, Any]] = []
    for page in pages:
        for queue, some in groupby(sorted(page), key=lambda found: found.queue):
            tasks = list(some)
            names = b"".join(found.id.bytes + found.version.to_bytes(8) for found in tasks)
            last_at = tasks[-1].next_run_at
            told = {"slot": tasks[0].slot, "queue": queue, "names": names, "last_at": last_at}
            rows.append({**told, "controls": None})
    blank = dict.fromkeys(("slot", "queue", "names", "last_at"))
    return [*rows, {**blank, "controls": str(controls)}]
