"""The due rows of one queue with one concurrency key, of which only some may be claimed at a time.

Only as many as its `gate` allows stand in line with the other rows of the queue; the rest waits here, so that a
key without room holds up nobody.
"""

from bisect import bisect_left, insort
from uuid import UUID

from duly.actors.gate import Gate
from duly.actors.lane import Place

KEPT = 1_000
"""Rows that wait here at most; what is beyond stays in the store alone."""

LOW = 250
"""With no more rows than this, a saturated lot has room for the next from the store."""


class KeyLot:
    """Rows by priority and due time, whatever their fairness keys."""

    def __init__(self) -> None:
        self._rows: list[Place] = []  # the best first
        self.out = 0
        """Rows that stand in line, or are being claimed."""
        self._in_line: dict[UUID, Place] = {}
        self.gate = Gate()
        self.saturated = False
        """Rows were turned away: the store holds due ones that this lot does not know."""
        self._turned_away = False  # since `asked`

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_over(self) -> bool:
        """Nothing would be lost with it."""
        return not (self._rows or self.out or self.saturated)

    @property
    def hungry(self) -> bool:
        """It can take in what was turned away."""
        return self.saturated and len(self._rows) <= LOW

    def add(self, place: Place) -> None:
        """Let a row wait."""
        insort(self._rows, place)

    def discard(self, place: Place) -> bool:
        """Take a row out; False if it does not wait here."""
        at = bisect_left(self._rows, place)
        if at == len(self._rows) or self._rows[at] != place:
            return False
        del self._rows[at]
        return True

    def turn_away(self) -> Place:
        """Leave the worst row to the store."""
        self.saturated = self._turned_away = True
        return self._rows.pop()

    def keep_slots(self, slots: frozenset[int]) -> list[Place]:
        """Drop, and answer, the rows of other slots."""
        gone = [place for place in self._rows if place[-1].slot not in slots]
        self._rows = [place for place in self._rows if place[-1].slot in slots]
        return gone

    def let_out(self) -> list[Place]:
        """The rows that may stand in line now, the best first."""
        room = 0 if self.gate.blocked else max(0, self.gate.allowance - self.out)
        rows = self._rows[:room]
        del self._rows[:room]
        self.out += len(rows)
        self._in_line.update((place[-1].id, place) for place in rows)
        return rows

    def left_line(self, row_id: UUID) -> None:
        """A row that was let out is being claimed, or gone."""
        self._in_line.pop(row_id, None)

    def call_back(self) -> list[Place]:
        """Let those that stand in line wait here again; answers them."""
        rows = list(self._in_line.values())
        self._in_line.clear()
        self.out -= len(rows)
        for place in rows:
            self.add(place)
        return rows

    def tried(self, claimed: int, held: int) -> None:
        """What became of rows that were out: so many are claimed, so many found no room."""
        self.out -= claimed + held
        self.gate.tried(claimed, held, self.out)

    def asked(self) -> None:
        """The store's rows of this key are about to be read, the best first."""
        self._turned_away = False

    def refilled(self, complete: bool) -> None:
        """They have been read and added; `complete`: all of them."""
        if complete and not self._turned_away:
            self.saturated = False
