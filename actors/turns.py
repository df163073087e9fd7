"""Which slots to read from their beginning now, where that takes long: some at a time, in turns.

An index keeps the entries of what is gone until a vacuum removes them, and as long as a transaction is open that is
older than they are (a backup, a report, a forgotten session), none does. Whoever reads from the beginning steps over
all of them, and `tasks` gets thousands a second.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence

from duly.storage.slots import SLOTS

_HELPS = 0.75  # half as many take no more than this part of the time
_HOLD = 64  # looks


class Turns:
    """All slots, while reading them takes `most_s` seconds or less; else half as many, until it does.

    At least a part of them in `most_turns`, so that each has its turn within so many looks. If half as many take as long, it is not
    because of them (a busy server, a slow network): then all are read for a while.
    """

    def __init__(self, most_s: float, most_turns: int) -> None:
        self._most_s = most_s
        self._least = -(-SLOTS // most_turns)
        self._count = SLOTS
        self._next = 0
        self._halved_at_s: float | None = None
        self._hold = 0

    def take(self, slots: Collection[int]) -> list[int]:
        """Those of these slots whose turn it is, in the order of turns."""
        ordered = sorted(slots)
        at = bisect_left(ordered, self._next)
        return (ordered[at:] + ordered[:at])[: self._count]

    def took(self, slots: Sequence[int], seconds: float) -> None:
        """These, as they were taken, have been read in so long: others are next."""
        if not slots:
            return
        self._next = slots[-1] + 1
        halved_at_s, self._halved_at_s = self._halved_at_s, None
        self._hold = max(0, self._hold - 1)
        if len(slots) == self._count < self._least:
            self._count = min(self._least, 2 * self._count)
        elif halved_at_s is not None and seconds > _HELPS * halved_at_s:
            self._count, self._hold = SLOTS, _HOLD
        elif seconds > self._most_s:
            if not self._hold and len(slots) > self._least:
                self._count, self._halved_at_s = max(self._least, len(slots) // 2), seconds
        elif seconds < self._most_s / 2 and len(slots) == self._count:
            self._count = min(SLOTS, 2 * self._count)

    def failed(self, slots: Sequence[int], seconds: float) -> None:
        """These could not be read, perhaps not in the time that a statement may take: so fewer, however few."""
        if slots and seconds > self._most_s:
            self._next = slots[-1] + 1
            self._count, self._halved_at_s = max(1, len(slots) // 2), None
