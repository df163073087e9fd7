"""Due rows of one priority and fairness key, the best first. What comes is mostly due after all that is there."""

from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from datetime import datetime
from itertools import islice
from uuid import UUID

from duly.storage.slots import DueRow

Place = tuple[int, datetime, UUID, DueRow]
"""The better row's is the smaller: priority (negated), due time, id."""

Order = tuple[int, datetime]
"""Its first two."""

_TAKEN_MAX = 1_000


def order_of(row: DueRow) -> Order:
    """By priority and due time; the better row's is the smaller."""
    return -row.priority, row.next_run_at


class Lane:
    """A list that is cheap to add to at its end and to take from at its beginning."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._taken = 0  # so many at the beginning are gone

    def __len__(self) -> int:
        return len(self._places) - self._taken

    def __iter__(self) -> Iterator[Place]:
        return islice(self._places, self._taken, None)

    @property
    def worst(self) -> Place:
        """The last one."""
        return self._places[-1]

    def at(self, number: int) -> Place:
        """The one at this place; 1: the best."""
        return self._places[self._taken + number - 1]

    def add(self, place: Place) -> None:
        """Take one in."""
        if len(self) and place < self._places[-1]:
            insort(self._places, place, lo=self._taken)
        else:
            self._places.append(place)

    def discard(self, place: Place) -> None:
        """Take one out that is there."""
        del self._places[bisect_left(self._places, place, lo=self._taken)]

    def pop(self) -> Place:
        """Take the best out."""
        place = self._places[self._taken]
        self._taken += 1
        if self._taken > _TAKEN_MAX and 2 * self._taken > len(self._places):
            self._forget_taken()
        return place

    def drop(self, ids: Container[UUID]) -> None:
        """Take out the rows of these ids."""
        self._forget_taken()
        self._places = [place for place in self._places if place[-1].id not in ids]

    def _forget_taken(self) -> None:
        del self._places[: self._taken]
        self._taken = 0
