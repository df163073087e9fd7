"""Entries whose time has come but that the caller has not taken yet, in due order.

Two sources are merged. The run is one slot of the wheel, sorted once and then served from its
end: what did not fit into a bite. The late heap holds entries inserted with a due that the wheel
has already passed. Nothing is searched: a cancelled key leaves its dict, and its place in the
list or the heap is dropped when it comes up.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")

_GARBAGE_MIN = 64


class DueQueue(Generic[K]):
    """Every entry here is due; ties go to the one that was inserted first."""

    __slots__ = ("_arrivals", "_late", "_late_arrival", "_run", "_run_due_us")

    def __init__(self) -> None:
        self._run: list[K] = []  # latest first; keys not in _run_due_us were cancelled
        self._run_due_us: dict[K, int] = {}
        self._late: list[tuple[int, int, K]] = []  # heap of (due_us, arrival, key)
        self._late_arrival: dict[K, int] = {}  # an item of the heap is live if its arrival is here
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._run_due_us) + len(self._late_arrival)

    def load(self, slot: dict[K, int]) -> None:
        """Make `slot` the run. O(n log n). Only when the queue is empty."""
        assert not len(self), "a run is loaded only after the one before was served"
        self._run = sorted(slot, key=slot.__getitem__)
        self._run.reverse()
        self._run_due_us = slot

    def push(self, key: K, due_us: int) -> None:
        """Add one late entry. O(log n) of the late ones."""
        self._arrivals += 1
        self._late_arrival[key] = self._arrivals
        heappush(self._late, (due_us, self._arrivals, key))
        if len(self._late) > 2 * len(self._late_arrival) + _GARBAGE_MIN:
            self._late = [item for item in self._late if self._is_live(item)]
            heapify(self._late)

    def remove(self, key: K) -> None:
        """Take `key` out. O(1). Raises KeyError if it is not here."""
        if self._run_due_us.pop(key, None) is None:
            del self._late_arrival[key]

    def first_us(self) -> int | None:
        """Due of the earliest entry, None if there is none."""
        self._drop_cancelled()
        dues_us = [item[0] for item in self._late[:1]]
        if self._run:
            dues_us.append(self._run_due_us[self._run[-1]])
        return min(dues_us, default=None)

    def take(self, limit: int) -> list[K]:
        """Remove and return the earliest keys, at most `limit`."""
        keys: list[K] = []
        while self._late and len(keys) < limit:
            self._drop_cancelled()
            if self._run and not self._is_late_first():
                key = self._run.pop()
                del self._run_due_us[key]
                keys.append(key)
            elif self._late:
                key = heappop(self._late)[2]
                del self._late_arrival[key]
                keys.append(key)
        run, run_due_us = self._run, self._run_due_us
        while run and len(keys) < limit:
            key = run.pop()
            if run_due_us.pop(key, None) is not None:
                keys.append(key)
        return keys

    def _is_late_first(self) -> bool:
        """Whether the next one is late; on a tie the run was there before."""
        return bool(self._late) and self._late[0][0] < self._run_due_us[self._run[-1]]

    def _is_live(self, item: tuple[int, int, K]) -> bool:
        return self._late_arrival.get(item[2]) == item[1]

    def _drop_cancelled(self) -> None:
        while self._run and self._run[-1] not in self._run_due_us:
            self._run.pop()
        while self._late and not self._is_live(self._late[0]):
            heappop(self._late)
