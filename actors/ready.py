"""The due tasks of one queue that wait for capacity: by priority, then by due time."""

import heapq
from datetime import datetime
from uuid import UUID

from duly.storage.slots import DueRow

FULL = 10_000
"""Rows a queue holds at most; what is beyond stays in the store alone."""

LOW = 5_000
"""Below this a queue that was full asks for more."""


class ReadyQueue:
    """At most `FULL` rows. When full, a row that is better than the worst takes its place."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, datetime, UUID]] = []
        self._rows: dict[UUID, DueRow] = {}
        self.saturated = False
        """Rows were turned away since `settled` last said that there is room again."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: DueRow) -> None:
        """Take a row in, unless it is there already or there are enough better ones."""
        known = self._rows.get(row.id)
        if known is not None:
            if known.version < row.version:
                self._rows[row.id] = row
            return
        if len(self._rows) >= FULL:
            self.saturated = True
            if not self._make_room_for(row):
                return
        self._rows[row.id] = row
        heapq.heappush(self._heap, (row.priority, row.next_run_at, row.id))

    def take(self, limit: int) -> list[DueRow]:
        """Remove and return the best rows, best first."""
        taken: list[DueRow] = []
        while self._heap and len(taken) < limit:
            _, _, task_id = heapq.heappop(self._heap)
            row = self._rows.pop(task_id, None)
            if row is not None:
                taken.append(row)
        return taken

    def keep_slots(self, slots: frozenset[int]) -> None:
        """Drop the rows of slots that are not ours any more."""
        self._rows = {key: row for key, row in self._rows.items() if row.slot in slots}

    def has_room_again(self) -> bool:
        """True once after a saturated queue has emptied enough to read more."""
        if self.saturated and len(self._rows) <= LOW:
            self.saturated = False
            return True
        return False

    def _make_room_for(self, row: DueRow) -> bool:
        # Rare and O(n): a full queue, and a newcomer of a better priority than the worst.
        worst = max(self._rows.values(), key=lambda r: (r.priority, r.next_run_at))
        if (row.priority, row.next_run_at) >= (worst.priority, worst.next_run_at):
            return False
        del self._rows[worst.id]
        self._heap = [(r.priority, r.next_run_at, r.id) for r in self._rows.values()]
        heapq.heapify(self._heap)
        return True
