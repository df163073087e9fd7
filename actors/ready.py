"""The due tasks of one queue that wait for capacity: by priority, then by due time."""

import heapq
from datetime import datetime
from uuid import UUID

from duly.storage.slots import DueRow

FULL = 10_000
"""Rows a queue holds at most; what is beyond stays in the store alone."""

LOW = 2_500
"""A saturated queue with no more rows than this has room for the next from the store."""

_KEPT = 9_000  # of a full queue, when better rows come: so that not each of them costs a sort

_Rank = tuple[int, datetime]  # the lowest is the best: priority 9 first


class ReadyQueue:
    """At most `FULL` rows. When it is full, better rows take the place of the worst."""

    def __init__(self) -> None:
        self._rows: dict[UUID, DueRow] = {}
        self._heap: list[tuple[int, datetime, UUID]] = []  # also of rows that have left
        self._worst: _Rank | None = None  # no row is worse than this
        self._turned_away = False  # since `asked`
        self.saturated = False
        """Rows were turned away: the store holds due ones that this queue does not know."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def hungry(self) -> bool:
        """It can take in what was turned away."""
        return self.saturated and len(self._rows) <= LOW

    def add(self, row: DueRow) -> None:
        """Take a row in, unless it is there already or there are enough better ones."""
        known = self._rows.get(row.id)
        if known is not None and known.version >= row.version:
            return
        rank = _rank(row)
        if known is None and len(self._rows) >= FULL:
            self.saturated = self._turned_away = True
            if self._worst is not None and rank >= self._worst:
                return
            self._rebuild(sorted(self._rows.values(), key=_rank)[:_KEPT])
        self._rows[row.id] = row
        heapq.heappush(self._heap, (*rank, row.id))
        if self._worst is None or rank > self._worst:
            self._worst = rank

    def take(self, limit: int) -> list[DueRow]:
        """Remove and return the best rows, best first."""
        taken: list[DueRow] = []
        while self._heap and len(taken) < limit:
            worth, due, task_id = heapq.heappop(self._heap)
            row = self._rows.get(task_id)
            if row is not None and _rank(row) == (worth, due):
                taken.append(self._rows.pop(task_id))
        if not self._rows:
            self._rebuild([])
        return taken

    def keep_slots(self, slots: frozenset[int]) -> None:
        """Drop the rows of slots that are not ours any more."""
        kept = [row for row in self._rows.values() if row.slot in slots]
        self._rebuild(sorted(kept, key=_rank))

    def asked(self) -> None:
        """The store's rows of this queue are about to be read, the best first."""
        self._turned_away = False

    def refilled(self, complete: bool) -> None:
        """They have been read and added; `complete`: all of them."""
        if complete and not self._turned_away:
            self.saturated = False

    def _rebuild(self, rows: list[DueRow]) -> None:
        """Hold these rows, which are in order, and nothing else."""
        self._rows = {row.id: row for row in rows}
        self._heap = [(*_rank(row), row.id) for row in rows]
        heapq.heapify(self._heap)  # in order but for ties
        self._worst = _rank(rows[-1]) if rows else None


def _rank(row: DueRow) -> _Rank:
    return -row.priority, row.next_run_at
