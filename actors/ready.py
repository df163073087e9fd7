"""The due tasks of one queue that wait for capacity, in the order of `lanes`.

Once a row was turned away, what falls due after it in that order is left to the store, too, though there may be room
(see `boundary`): else it would run before that row, for as long as more falls due than runs.

Those with a concurrency key come through the lot of their key (`key_lot`), and the bounds of both are apart: what
waits for its key takes no room from the others.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from uuid import UUID

from duly.actors.boundary import BEFORE_ALL, Boundary
from duly.actors.key_lot import KEPT, KeyLot
from duly.actors.lane import Place
from duly.actors.lanes import Lanes, place_of
from duly.storage.slots import DueRow

FULL = 25_000
"""Rows that stand in line at most, and that wait for keys at most; the rest stays in the store alone.

So of few queues: see `full_of`.
"""

BROUGHT = 10_000
"""Rows that are read of the store at once, at most: so many hold up neither PostgreSQL nor the loop for long."""

LOW = 5_000
"""A saturated queue with no more rows than this has room for the next from the store."""

_OF_ALL = 100_000
_ASIDE = 5  # a fifth of what fits in line is more than falls due during a refill, but in a spike
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
        self._boundary = Boundary(lambda: self._full() // _ASIDE)
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

    def asks(self, now_us: int) -> bool:
        """Whether it is hungry, and to be asked for now (µs, cluster's clock)."""
        return self.hungry and self._boundary.asks(now_us)

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

    def add(self, row: DueRow, *, brought: bool = False, again: bool = False) -> None:
        """Take a row in, unless it is there already or there are enough better ones.

        `brought` from the store, or here `again` after an attempt to claim it: no better one has to be read before it.
        """
        known = self._rows.get(row.id)
        if known is not None:
            if known[-1].version >= row.version:
                return
            self._discard(known)
        if not self._boundary.forget(row):
            return
        place = place_of(row)
        if row.concurrency_key is None:
            self._stand(place, brought=brought or again)
        else:
            self._wait(row.concurrency_key, place)
        if brought and row.id in self._rows:
            self._boundary.brought_new = True

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
            self.add(row, again=True)
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
        self._boundary.keep_slots(slots)
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
        self.saturated = True
        self._boundary.turned_away(BEFORE_ALL)

    def asked(self, now_us: int) -> None:
        """The store's rows of this queue are about to be read, the best first. µs on the cluster's clock.

        It may be said again and again until they have been. If that is in vain, what fell due waits no longer.
        """
        self._stand_all(self._boundary.asked(now_us))

    def refilled(self, complete: bool, last: DueRow | None = None, until_us: int = 0) -> None:
        """They have been read and added; `complete`: all of them. `last`, `until_us`: see `Refilled`."""
        boundary = self._boundary
        aside = boundary.refilled(last, until_us, takes_turns=self._line.takes_turns)
        if complete and not boundary.missed_some:
            self.saturated = False
        if boundary.is_set:
            self.saturated = True
            beyond = self._line.drop_where(boundary.is_before)
            boundary.keep_early(beyond)
            self._dropped(beyond)
        self._stand_all(aside)
        self._is_best_known = True

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

    def _stand(self, place: Place, *, brought: bool = False) -> None:
        """Stand in line, unless it is full of better rows, or better ones are in the store."""
        if not brought and self._boundary.is_before(place[-1]):
            self._boundary.put_aside(place)
            return
        is_full = len(self._line) >= BROUGHT and len(self._line) >= self._full()
        if is_full:
            if not self.saturated:
                self._is_best_known = False
            self.saturated = True
            if self._line.is_below_all(place):
                self._turned_away([place])
                self._gone(place)
                return
        self._rows[place[-1].id] = place
        self._line.add(place)
        if is_full:  # this one may be among those that make way
            dropped = self._line.trim(self._full() + 1 - _MAKES_WAY)
            self._turned_away(dropped)
            self._dropped(dropped)

    def _stand_all(self, places: Iterable[Place]) -> None:
        for place in places:
            self._stand(place)

    def _turned_away(self, places: list[Place]) -> None:
        self._boundary.turned_away(min(places)[:2], takes_turns=self._line.takes_turns)
        self._boundary.keep_early(places)

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
