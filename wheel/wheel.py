"""Hierarchical timing wheel: O(1) insert and cancel, expiry in due order, empty time for free.

After Varghese and Lauck (SOSP 1987; IEEE/ACM Transactions on Networking 1997), with the bitmask
of occupied slots that tokio uses, and two differences: a wheel here never fires early, not even
within a tick, and a slot moves down one slot ahead of time, which keeps the moves small.

The idea. Write an instant in microseconds with digits of base 1024. Level 0 sorts by the digit
above the lowest, level 1 by the one above that, and so on:

    level   slot is        a group (1024 slots) is
      0     1.024 ms       1.05 s
      1     1.05 s         17.9 min
      2     17.9 min       12.7 days
      3     12.7 days      35.7 years
      4     35.7 years     36,558 years

A group of one level is a slot of the next. Each level covers the group that the position is in
and the group after it; an entry lives in the lowest level that covers its due. So where an entry
lives follows from its due and the position alone: nothing about it need be stored or searched.

Worked example, with base 10 and slots of 1, 10 and 100. The position is 38: level 0 covers 39 to
49, level 1 up to 199, level 2 up to 1999.

    insert 45, 61, 150, 203    45 in level 0; 61 and 150 in level 1, slots 6 and 15;
                               203 in level 2, slot 2
    advance to 44              the position enters the ten 4, so level 0 must now cover the
                               ten 5: slot 5 of level 1 moves down (it is empty)
    advance to 57              45 is returned; the ten 5 is entered, slot 6 moves down: 61 is in
                               level 0 now
    advance to 125             61 is returned; the hundred 1 is entered, slot 2 of level 2 moves
                               down: 203 is in level 1, slot 20
    advance to 300             150, then 203 are returned. Nothing was looked at in between: the
                               bitmasks lead from one occupied slot to the next

Were a slot moved down only when the position reaches it (the usual way), an entry just behind a
group's end would sit in a high level however near it is, and all those entries would move at
once: with a million tasks in the next two minutes, one stall of 200 ms every 18 minutes. Moved
one ahead, a task due within 17 minutes is never above level 1, and 1.05 s of tasks move at once.

Cost. An entry moves down at most once per level, and not at all past a whole slot that is due
(after a stall, small slots are sorted and returned as they are). What the garbage collector has
to look at does not grow with the number of entries: every container holds only keys, integers
and records that the collector ignores.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from duly.wheel.due_queue import DueQueue
from duly.wheel.level import GROUP_BITS, Level

K = TypeVar("K")
V = TypeVar("V")

_LEVEL_SHIFTS = (10, 20, 30, 40, 50)
_TOP_SHIFT = _LEVEL_SHIFTS[-1] + GROUP_BITS

MAX_US = (1 << _TOP_SHIFT) - 1
"""Latest instant that the wheel can hold: in the year 38503."""

_SORT_MAX = 4096  # a due slot up to this size is sorted at once, a larger one moves down first
_EXACT_MAX = 64  # up to this many entries are looked at to tell the exact next due


class _Entry(msgspec.Struct, Generic[V], gc=False):
    due_us: int
    value: V


class Wheel(Generic[K, V]):
    """Entries `key -> (due_us, value)`, returned by `advance` when they are due, in due order.

    All instants are integer microseconds since the epoch on one clock, the caller's. The wheel
    reads no clock and is not thread-safe. Keys must be hashable; keys and values that are plain
    (bytes, str, int, or tuples of them) cost the garbage collector nothing. A value must not
    refer back to the wheel: such a cycle would never be collected.
    """

    def __init__(self, start_us: int) -> None:
        """A wheel at position `start_us`. Raises ValueError outside 0 to `MAX_US`."""
        if not 0 <= start_us <= MAX_US:
            raise ValueError(f"start_us must be between 0 and {MAX_US}, got {start_us}")
        self._now_us = start_us  # the latest instant that advance was told
        self._position_us = start_us  # up to here no entry is in a level; behind _now_us in bites
        self._index: dict[K, _Entry[V]] = {}
        self._due: DueQueue[K] = DueQueue()
        self._levels = tuple(Level[K](shift) for shift in _LEVEL_SHIFTS)
        self._ends_us = [((start_us >> s) + 2) << s for s in (*_LEVEL_SHIFTS[1:], _TOP_SHIFT)]

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def insert(self, key: K, due_us: int, value: V) -> None:
        """Add an entry, or give an existing key a new due and value. O(1).

        A due that is past is returned by the next advance. Raises ValueError if `due_us` is
        beyond `MAX_US`.
        """
        if due_us > MAX_US:
            raise ValueError(f"due_us must be at most {MAX_US}, got {due_us}")
        if key in self._index:
            self.cancel(key)
        if due_us > self._position_us:
            self._levels[bisect_right(self._ends_us, due_us)].add(key, due_us)
        else:
            self._due.push(key, due_us)
        self._index[key] = _Entry(due_us, value)

    def get(self, key: K) -> tuple[int, V] | None:
        """`(due_us, value)` of an entry, None if there is none."""
        entry = self._index.get(key)
        return None if entry is None else (entry.due_us, entry.value)

    def cancel(self, key: K) -> bool:
        """Remove an entry; False if there is none. O(1)."""
        entry = self._index.pop(key, None)
        if entry is None:
            return False
        due_us = entry.due_us
        if due_us > self._position_us:
            self._levels[bisect_right(self._ends_us, due_us)].remove(key, due_us)
        else:
            self._due.remove(key)
        return True

    def discard_where(self, predicate: Callable[[K, V], bool]) -> int:
        """Remove every entry for which `predicate(key, value)` holds; returns how many. O(n)."""
        doomed = [key for key, entry in self._index.items() if predicate(key, entry.value)]
        for key in doomed:
            self.cancel(key)
        return len(doomed)

    def next_due_us(self) -> int | None:
        """The instant to sleep until, None if the wheel is empty.

        It is the earliest due, exact unless more than 64 entries share its slot; then it may be
        the start of the slot, which is at most 1.024 ms (for far entries: one slot of their
        level) earlier. Never later than the earliest due.
        """
        if len(self._due):
            return self._due.first_us()
        found = self._first_slot(self._position_us)
        if found is None:
            return None
        level, number = found
        slot = level.peek(number)
        start_us = number << level.shift
        if len(slot) <= _EXACT_MAX or start_us <= self._position_us:
            return min(slot.values())
        return start_us

    def advance(self, now_us: int, limit: int | None = None) -> list[tuple[int, K, V]]:
        """Remove and return `(due_us, key, value)` of all that is due, earliest first.

        Never anything with a due after `now_us`; ties in the order of insertion. With `limit`
        (>= 1) only the first so many, the rest stays for the next call. A `now_us` earlier than
        one before returns nothing: time does not go back. Raises ValueError for a bad limit or
        a `now_us` beyond `MAX_US`.
        """
        if limit is None:
            limit = max(1, len(self._index))
        elif limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if now_us > MAX_US:
            raise ValueError(f"now_us must be at most {MAX_US}, got {now_us}")
        if now_us < self._now_us:
            return []
        self._now_us = now_us
        keys = self._due.take(limit) if len(self._due) else []
        if len(keys) < limit:
            self._collect(keys, now_us, limit)
        entries = map(self._index.pop, keys)
        return [(entry.due_us, key, entry.value) for key, entry in zip(keys, entries, strict=True)]

    def _collect(self, keys: list[K], now_us: int, limit: int) -> None:
        """Append keys due at `now_us` until there are `limit`, and move the position along."""
        reached_us = self._position_us
        while len(keys) < limit and reached_us < now_us:
            found = self._first_slot(reached_us)
            if found is None or found[1] << found[0].shift > now_us:
                reached_us = now_us
                break
            level, number = found
            end_us = (number + 1) << level.shift
            if level is self._levels[0]:
                slots, reached_us = level.take_due(number, now_us, limit - len(keys))
            elif end_us <= now_us + 1 and len(level.peek(number)) <= _SORT_MAX:
                slots, reached_us = [level.take(number)], end_us - 1
            else:
                slots, reached_us = [], (number << level.shift) - 1
                self._move_to(reached_us)  # which moves the slot down
            for slot in slots:
                if len(keys) + len(slot) > limit:
                    self._due.load(slot)
                    keys += self._due.take(limit - len(keys))
                else:
                    keys += sorted(slot, key=slot.__getitem__) if len(slot) > 1 else slot
        self._move_to(reached_us)

    def _first_slot(self, position_us: int) -> tuple[Level[K], int] | None:
        """The earliest occupied slot: every entry of a level is before those of the next."""
        for level in self._levels:
            number = level.first(position_us)
            if number is not None:
                return level, number
        return None

    def _move_to(self, position_us: int) -> None:
        """Set the position, up to which all is taken; keep every level covering what it should.

        A level whose slot the position leaves hands the slot after the new one down.
        """
        before_us = self._position_us
        assert position_us >= before_us, "the wheel's position never goes back"
        self._position_us = position_us
        changed = position_us ^ before_us
        height = 1
        while height < len(self._levels) and changed >> _LEVEL_SHIFTS[height]:
            height += 1
        for above in range(height - 1, 0, -1):  # from the top, so that an entry can fall through
            level = self._levels[above]
            current = position_us >> level.shift
            assert not level.peek(current), "the position entered a slot that was not moved down"
            if below := level.take(current + 1):
                self._levels[above - 1].spread(below)
            self._ends_us[above - 1] = (current + 2) << level.shift
