"""The due tasks of one queue that wait for capacity, in the order of `lanes`.

Once a row was turned away, what comes after it in that order is left to the store, too, though there may be room:
else what falls due later would run before it, for as long as more falls due than runs.

Those with a concurrency key come through the lot of their key (`key_lot`), and the bounds of both are apart: what
waits for its key takes no room from the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

from duly.actors.key_lot import KEPT, KeyLot
from duly.actors.lane import Place, order_of
from duly.actors.lanes import Lanes, place_of
from duly.storage.slots import DueRow

FULL = 25_000
"""Rows that stand in line at most, and that wait for keys at most; the rest stays in the store alone.

So of few queues: see `full_of`.
"""

BROUGHT = 10_000
"""Rows that are read of the store at once, at most: so many hold up neither PostgreSQL nor the loop for long."""

LOW = 2_500
"""A saturated queue with no more rows than this has room for the next from the store."""

_OF_ALL = 100_000
_MAKES_WAY = 1_000  # of a full queue, when better rows come: there is room for as many then


def full_of(queues: int) -> int:
    """Rows of each at most, where so many queues have some: a row takes half a kilobyte of the node's memory."""
    return max(BROUGHT, min(FULL, _OF_ALL // max(1, queues)))


class ReadyQueue:
    """Rows to take, `len` of them, and rows that wait for their key. Full, better ones replace the worst."""

    def __init__(self, full: Callable[[], int] = lambda: full_of(1)) -> None:
        """`full`: rows that it holds at most, `BROUGHT` or more; it may change."""
        self._full = full
        self._rows: dict[UUID, Place] = {}
        self._line = Lanes()
        self._lots: dict[str, KeyLot] = {}
        self._in_lots = 0
        self._turned_away = False  # since `asked`
        self._store_goes_on: tuple[int, datetime] | None = None
        self._is_best_known = True
        self.saturated = False
        """Rows were turned away: the store holds due ones that this queue does not know."""
        self.saturated_keys: set[str] = set()
        """Concurrency keys of which that is true."""

    def __len__(self) -> int:
        return len(self._line)

    @property
    def idle(self) -> bool:
        """Nothing stands in line, waits for a key, or is being claimed with one."""
        return not (self._line or self._lots)

    @property
    def hungry(self) -> bool:
        """It can take in what was turned away, or does not know yet whether that was the best there is."""
        return self.saturated and (len(self) <= LOW or not self._is_best_known)

    @property
    def hungry_keys(self) -> list[str]:
        """Of the saturated keys, those that can take in what was turned away."""
        return [key for key in self.saturated_keys if self._lots[key].hungry]

    def rank(self, place: int = 1) -> int | None:
        """The rank of the next row, or of the one at `place`; see `Lanes`. None if there is no row."""
        return self._line.rank() if place == 1 else self._line.rank_at(place)

    def ranks(self, count: int) -> list[int]:
        """The ranks of the next rows, at most `count`."""
        return self._line.ranks(count)

    def knows(self, task_id: UUID, version: int) -> bool:
        """Whether a task stands in line or waits for its key, in this version or a later one."""
        known = self._rows.get(task_id)
        return known is not None and known[-1].version >= version

    def add(self, row: DueRow) -> None:
        """Take a row in, unless it is there already or there are enough better ones."""
        known = self._rows.get(row.id)
        if known is not None:
            if known[-1].version >= row.version:
                return
            self._discard(known)
        place = place_of(row)
        if row.concurrency_key is None:
            self._stand(place)
        else:
            self._wait(row.concurrency_key, place)

    def take(self, limit: int, up_to: int | None = None) -> list[DueRow]:
        """Remove and return the rows whose turn it is, as far as they rank before `up_to`.

        Of each with a concurrency key `tried` wants to know what became of it.
        """
        taken: list[DueRow] = []
        while len(taken) < limit and (place := self._line.pop(up_to)) is not None:
            row = place[-1]
            del self._rows[row.id]
            taken.append(row)
            if row.concurrency_key is not None and row.concurrency_key in self._lots:
                self._lots[row.concurrency_key].left_line(row.id)
        return taken

    def tried(self, rows: Iterable[DueRow], held: Iterable[DueRow]) -> set[str]:
        """Of rows that were taken: those that found no room for their key, `held`, wait on.

        Answers the keys that have no room. What stands in line with them makes way for the others.
        """
        without_room = Counter(row.concurrency_key for row in held)
        for key, count in Counter(row.concurrency_key for row in rows).items():
            if key is not None and key in self._lots:
                self._lots[key].tried(count - without_room[key], without_room[key])
        for row in held:
            self.add(row)
        keys = {row.concurrency_key for row in rows if row.concurrency_key is not None}
        for key in keys:
            self._let_out(key)
        blocked = {key for key in keys if key in self._lots and self._lots[key].gate.blocked}
        for key in blocked:
            self._call_back(key)
        return blocked

    def free(self, key: str) -> None:
        """There may be room for a key again."""
        if key in self._lots:
            self._lots[key].gate.free(self._lots[key].out)
            self._let_out(key)

    def waiting_keys(self, keys: frozenset[str]) -> set[str]:
        """Those of these keys for which rows wait, or are being claimed."""
        return self._lots.keys() & keys

    def waits_for(self, key: str) -> bool:
        """Whether rows wait for this key, or are being claimed with it."""
        return key in self._lots

    def keep_slots(self, slots: frozenset[int]) -> None:
        """Drop the rows of slots that are not ours any more."""
        self._dropped(self._line.drop_where(lambda row: row.slot not in slots))
        for key, lot in list(self._lots.items()):
            gone = lot.keep_slots(slots)
            self._in_lots -= len(gone)
            for place in gone:
                del self._rows[place[-1].id]
            self._let_out(key)

    def leave_to_store(self) -> None:
        """Turn all rows away: none of them has its turn for a long while."""
        self.keep_slots(frozenset())
        self.saturated = self._turned_away = True

    def asked(self) -> None:
        """The store's rows of this queue are about to be read, the best first."""
        self._turned_away = False
        self._is_best_known = True
        self._store_goes_on = None

    def refilled(self, complete: bool, last: DueRow | None = None) -> None:
        """They have been read and added; `complete`: all of them. `last`: beyond it only the store knows who is next."""
        if complete and not self._turned_away:
            self.saturated = False
        if last is not None:
            self._leave_beyond(order_of(last))
            self._dropped(self._line.drop_where(self._is_for_the_store))

    def key_asked(self, key: str) -> None:
        """The same of the rows of one key."""
        if key in self._lots:
            self._lots[key].asked()

    def key_refilled(self, key: str, complete: bool) -> None:
        """The same of the rows of one key."""
        if key in self._lots:
            self._lots[key].refilled(complete)
            if not self._lots[key].saturated:
                self.saturated_keys.discard(key)
            self._let_out(key)

    # Places

    def _stand(self, place: Place) -> None:
        """Stand in line, unless it is full of better rows, or better ones are in the store."""
        if self._store_goes_on is not None and self._is_for_the_store(place[-1]):
            self._turned_away = True
            self._gone(place)
            return
        if len(self._line) >= BROUGHT and len(self._line) >= (full := self._full()):
            if not self.saturated:
                self._is_best_known = False
            self.saturated = self._turned_away = True
            if self._line.is_below_all(place):
                self._leave_beyond(place[:2])
                self._gone(place)
                return
            dropped = self._line.trim(full - _MAKES_WAY)
            self._leave_beyond(min(dropped)[:2])
            self._dropped(dropped)
        self._rows[place[-1].id] = place
        self._line.add(place)

    def _leave_beyond(self, order: tuple[int, datetime]) -> None:
        """The store has a row of this order that is not in line: what comes after it does not go before it.

        Where fairness keys take turns it may.
        """
        known = self._store_goes_on
        if (known is None or order < known) and not self._line.takes_turns:
            self._store_goes_on = order
            self.saturated = True  # so that it is asked for

    def _is_for_the_store(self, row: DueRow) -> bool:
        """Whether a better row is in the store; not of one that has a turn of its own."""
        known = self._store_goes_on
        if known is None or row.fairness_key is not None or row.concurrency_key is not None:
            return False
        return order_of(row) > known

    def _wait(self, key: str, place: Place) -> None:
        """Wait for the key, as long as there is something to wait for."""
        lot = self._lots.setdefault(key, KeyLot())
        lot.add(place)
        self._rows[place[-1].id] = place
        self._in_lots += 1
        self._let_out(key)
        if len(lot) > KEPT or (len(lot) > 0 and self._in_lots > self._full()):
            del self._rows[lot.turn_away()[-1].id]
            self._in_lots -= 1
            self.saturated_keys.add(key)

    def _let_out(self, key: str) -> None:
        lot = self._lots.get(key)
        if lot is None:
            return
        rows = lot.let_out()
        self._in_lots -= len(rows)
        for place in rows:
            self._rows.pop(place[-1].id, None)
            self._stand(place)
        if lot.is_over:
            self._lots.pop(key, None)

    def _call_back(self, key: str) -> None:
        """It may make the lot a little longer than it should be: by no more than its gate lets out."""
        for place in self._lots[key].call_back():
            self._line.discard(place)
            self._in_lots += 1

    def _discard(self, place: Place) -> None:
        key = place[-1].concurrency_key
        del self._rows[place[-1].id]
        if key is not None and self._lots[key].discard(place):
            self._in_lots -= 1
            return
        self._line.discard(place)
        self._gone(place)

    def _dropped(self, places: Iterable[Place]) -> None:
        for place in places:
            del self._rows[place[-1].id]
            self._gone(place)

    def _gone(self, place: Place) -> None:
        """A row is out of the line, untried."""
        key = place[-1].concurrency_key
        if key is not None and key in self._lots:
            lot = self._lots[key]
            lot.left_line(place[-1].id)
            lot.out -= 1
            if lot.is_over:
                del self._lots[key]
