"""The due tasks of one queue that wait for capacity: by priority, then by due time."""

from bisect import bisect_left, insort
from uuid import UUID

from duly.storage.slots import DueRow
from duly.wheel.durations import to_us

FULL = 10_000
"""Rows a queue holds at most; what is beyond stays in the store alone."""

LOW = 2_500
"""A saturated queue with no more rows than this has room for the next from the store."""

_KEPT = 9_000  # of a full queue, when better rows come: they make room for the next thousand
_RANKS_OF_A_PRIORITY = 10**14  # milliseconds: more than 3000 years, and exact in Lua
_HIGHEST = 9

_Place = tuple[int, int, int, DueRow]


class ReadyQueue:
    """At most `FULL` rows. When it is full, better rows take the place of the worst."""

    def __init__(self) -> None:
        self._rows: dict[UUID, _Place] = {}
        self._order: list[_Place] = []  # the best last, where taking it costs nothing
        self._turned_away = False  # since `asked`
        self.saturated = False
        """Rows were turned away: the store holds due ones that this queue does not know."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def hungry(self) -> bool:
        """It can take in what was turned away."""
        return self.saturated and len(self._rows) <= LOW

    def rank(self, place: int = 1) -> int | None:
        """The rank of the row at `place` from the best on, or of the worst if there are fewer.

        The lower the sooner: by priority, then by due time in milliseconds; the same scale on every
        node. None if there is no row.
        """
        return _rank(self._order[-min(place, len(self._order))]) if self._order else None

    def ranks(self, count: int) -> list[int]:
        """The ranks of the best rows, best first, at most `count`."""
        return [_rank(place) for place in self._order[: -count - 1 : -1]]

    def add(self, row: DueRow) -> None:
        """Take a row in, unless it is there already or there are enough better ones."""
        known = self._rows.get(row.id)
        if known is not None and known[-1].version >= row.version:
            return
        place = (row.priority, -to_us(row.next_run_at), -row.id.int, row)
        if known is not None:
            del self._order[bisect_left(self._order, known)]
        elif len(self._rows) >= FULL:
            self.saturated = self._turned_away = True
            if place < self._order[0]:
                return
            self._hold(self._order[-_KEPT:])
        self._rows[row.id] = place
        insort(self._order, place)

    def take(self, limit: int, up_to: int | None = None) -> list[DueRow]:
        """Remove and return the best rows, best first, as far as they rank before `up_to`."""
        taken: list[DueRow] = []
        while self._order and len(taken) < limit:
            if up_to is not None and _rank(self._order[-1]) > up_to:
                break
            row = self._order.pop()[-1]
            del self._rows[row.id]
            taken.append(row)
        return taken

    def keep_slots(self, slots: frozenset[int]) -> None:
        """Drop the rows of slots that are not ours any more."""
        self._hold([place for place in self._order if place[-1].slot in slots])

    def leave_to_store(self) -> None:
        """Turn all rows away: none of them has its turn for a long while."""
        self._hold([])
        self.saturated = self._turned_away = True

    def asked(self) -> None:
        """The store's rows of this queue are about to be read, the best first."""
        self._turned_away = False

    def refilled(self, complete: bool) -> None:
        """They have been read and added; `complete`: all of them."""
        if complete and not self._turned_away:
            self.saturated = False

    def _hold(self, order: list[_Place]) -> None:
        self._order = order
        self._rows = {place[-1].id: place for place in order}


def _rank(place: _Place) -> int:
    priority, due_us = place[0], -place[1]
    due_ms = min(max(due_us // 1000, 0), _RANKS_OF_A_PRIORITY - 1)
    return (_HIGHEST - priority) * _RANKS_OF_A_PRIORITY + due_ms
