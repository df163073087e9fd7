"""Which slots to read from their beginning now, where that takes long: some at a time, in turns.

An index keeps the entries of what is gone until a vacuum removes them, and as long as a transaction is open that is
older than they are (a backup, a report, a forgotten session), none does. Whoever reads from the beginning steps over
all of them, and `tasks` gets thousands a second.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence

from duly.storage.slots import SLOTS


class Turns:
    """All slots, while reading them takes `most_s` seconds or less; else half as many, until it does."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._count = SLOTS
        self._next = 0

    def take(self, slots: Collection[int]) -> list[int]:
        """Those of these slots whose turn it is, in the order of turns."""
        ordered = sorted(slots)
        at = bisect_left(ordered, self._next)
        return (ordered[at:] + ordered[:at])[: self._count]

    def took(self, slots: Sequence[int], seconds: float) -> None:
        """These, as they were taken, have been read in so long, or have failed to be: others are next."""
        if not slots:
            return
        if seconds > self._most_s:
            self._count = max(1, len(slots) // 2)
        elif seconds < self._most_s / 4 and len(slots) == self._count:
            self._count = min(SLOTS, 2 * self._count)
        self._next = slots[-1] + 1
