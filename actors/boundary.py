"""How far a queue knows the store's due rows, where it does not hold them all.

The store has a due row at the *boundary* that the queue does not hold: what falls due after that row in the order
of priority and due time would run before it. So it does not come into line, also not while the store is read: then
least of all, since with a large backlog it is read nearly always. A refill brings the store's best and moves the
boundary to the last of them.

The latest of what fell due beyond the boundary is kept *aside*, since a refill may have missed it: one that is being
read, and where a row was passed on before its time (see `lead`), also one that has begun since. Of the rest a refill
brings each in its turn.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from uuid import UUID

from duly.actors.lane import Order, Place, order_of
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us

BEFORE_ALL: Order = (-10, datetime.min.replace(tzinfo=UTC))
"""The boundary of a queue that holds nothing of what is due."""

_LOST_US = 2_000_000
"""A question that has not been answered for so long is put again: whom it was put to may have started anew."""

_IN_VAIN_US = 10_000_000
"""More than a statement may take: a store that cannot be read like this must not hold up a queue for ever."""

_AGAIN_US = 1_000_000
"""After an answer that was of no avail the next question waits so long."""


class Boundary:
    """Of one queue; by default there is none.

    Times are µs on the cluster's clock, without what it is ahead: so they go back if PostgreSQL's is set back.
    """

    def __init__(self, most_aside: Callable[[], int]) -> None:
        """`most_aside`: rows, 1 or more; it may change."""
        self._at: Order | None = None
        self._aside: dict[UUID, Place] = {}
        self._most_aside = most_aside
        self._is_asking = False
        self._asked_us = self._first_asked_us = 0  # `first`: if it was put again
        self._turned_away: Order | None = None  # since then: the best that is not aside
        self._turned_away_before: Order | None = None  # since the question before that one
        self.missed_some = False
        """Rows are in the store alone that the last refill need not have seen."""
        self.brought_new = False
        """It has brought what was not known."""

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self._at is not None

    def asks(self, now_us: int) -> bool:
        """Whether to ask, now that there is room: not while the store is read, nor at once after it was to no avail."""
        if self._is_asking:
            wait_us = _LOST_US
        else:
            wait_us = 0 if self.brought_new or self.missed_some else _AGAIN_US
        # The clock may have been set back.
        return not self._asked_us or not 0 <= now_us - self._asked_us < wait_us

    def is_before(self, row: DueRow) -> bool:
        """Whether a better row is in the store; not of one that has a turn of its own."""
        if self._at is None or row.fairness_key is not None or row.concurrency_key is not None:
            return False
        return order_of(row) > self._at

    def set(self, order: Order) -> None:
        """A row of this order is in the store alone."""
        if self._at is None or order < self._at:
            self._at = order

    def turned_away(self, order: Order, *, takes_turns: bool = False) -> None:
        """As `set`; and a refill that is being read may have missed it. Of rows that take turns no boundary is made."""
        if self._turned_away is None or order < self._turned_away:
            self._turned_away = order
        if not takes_turns:
            self.set(order)

    def asked(self, now_us: int) -> list[Place]:
        """The store is about to be read; that may be said again until it has been. µs on the cluster's clock.

        If it is in vain there is no boundary any more; answers what was aside then.
        """
        self._asked_us = now_us
        self._first_asked_us = min(self._first_asked_us, now_us)
        if not self._is_asking:
            self._is_asking, self._first_asked_us = True, now_us
            self._turned_away_before, self._turned_away = self._turned_away, None
            self.brought_new = False
        elif now_us - self._first_asked_us > _IN_VAIN_US:
            self._at = None
            return self._unseen(0)
        return []

    def refilled(self, last: DueRow | None, until_us: int, *, takes_turns: bool) -> list[Place]:
        """It has been read, up to `last`; answers what may have been missed, of which some may be beyond the new boundary.

        `until_us`: what was due by then (µs, cluster's clock), and passed on as due, has been seen.
        """
        missed = [self._turned_away]
        if self._is_asking and until_us < self._first_asked_us:
            missed.append(self._turned_away_before)  # the question before was put twice
        else:
            self._is_asking = False
        self.missed_some = any(order is not None for order in missed)
        self._at = None
        for order in (*missed, None if last is None else order_of(last)):
            if order is not None and not takes_turns:
                self.set(order)
        return self._unseen(until_us)

    # Aside

    def put_aside(self, place: Place) -> None:
        """Keep a row that is beyond the boundary. If there are too many, the first one is kept no longer."""
        self._aside[place[-1].id] = place
        while len(self._aside) > self._most_aside():
            self.turned_away(self._aside.pop(next(iter(self._aside)))[:2])

    def keep_early(self, places: Iterable[Place]) -> None:
        """Of rows that are left to the store keep aside those that were passed on before their time."""
        for place in places:
            row = place[-1]
            if to_us(row.next_run_at) > row.ticked_us and row.concurrency_key is None:
                self.put_aside(place)

    def forget(self, row: DueRow) -> bool:
        """Keep a task aside no longer; False if it is there in a later version than this, and stays."""
        place = self._aside.get(row.id)
        if place is not None and place[-1].version > row.version:
            return False
        self._aside.pop(row.id, None)
        return True

    def keep_slots(self, slots: frozenset[int]) -> None:
        """Drop the rows of other slots."""
        places = self._aside.items()
        self._aside = {task_id: place for task_id, place in places if place[-1].slot in slots}

    def _unseen(self, until_us: int) -> list[Place]:
        places, self._aside = self._aside.values(), {}
        return [p for p in places if p[-1].ticked_us > until_us or to_us(p[1]) > until_us]
