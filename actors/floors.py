"""From where on the due rows of a queue are read, where much that is gone lies before them (see `turns`)."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from duly.storage.slots import PRIORITY, DueRow

_FAST_S = 0.05
_SHARE = 10  # what is slower is done for a tenth of the time at most


class _Floor(NamedTuple):
    at: datetime | None
    """Rows of the usual priority that are due before this were not there; None: not known."""
    without: frozenset[str]
    """But for those of these concurrency keys."""
    until: float
    """On the monotonic clock: then it is looked from the beginning again, for what came since, due long ago."""


class Floors:
    """Of each queue that is read from its beginning slowly, the first due row that was there.

    What comes later and is due before that is told by name, as all that comes; this is about reading the store.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._floors: dict[str, _Floor] = {}

    def of(self, queue: str, without: Iterable[str]) -> datetime | None:
        """From where on to read it, without these concurrency keys; None: from the beginning."""
        floor = self._floors.get(queue)
        if floor is None or self._monotonic() >= floor.until or not floor.without.issubset(without):
            return None
        return floor.at

    def read(
        self,
        queue: str,
        without: Collection[str],
        rows: Iterable[DueRow],
        since: datetime | None,
        took_s: float,
    ) -> None:
        """These rows were the best of it, from `since` on, in so long."""
        first = min((row.next_run_at for row in rows if row.priority == PRIORITY), default=since)
        if since is not None:
            floor = self._floors[queue]
            self._floors[queue] = floor._replace(at=first, without=floor.without.union(without))
        elif took_s > _FAST_S:
            until = self._monotonic() + _SHARE * took_s
            self._floors[queue] = _Floor(first, frozenset(without), until)
        else:
            self._floors.pop(queue, None)

    def clear(self) -> None:
        """Slots were gained, with rows that are due before all that was there."""
        self._floors.clear()
