"""Due rows in the order in which they should run: by priority; then the fairness keys in turn; then by due time.

A fairness key has a *lane* on each priority where it has rows; rows without a key share one. The lanes of a
priority take turns, one row at a time, and within a lane the row that was due first goes first:

    priority 7   lane None   a1 a2            taken:  a1 b1 a2 b2 b3, then priority 5
                 lane "b"    b1 b2 b3

Where no row has a fairness key this is plain order by priority and due time.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from duly.actors.lane import Lane, Place
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us

RANKS_OF_A_PRIORITY = 10**14
"""Milliseconds: more than 3000 years, and exact in Lua."""

_HIGHEST = 9
_LAST = RANKS_OF_A_PRIORITY - 10**6  # behind every due time, with room for the slack of `line`


def place_of(row: DueRow) -> Place:
    """Where a row belongs."""
    return -row.priority, row.next_run_at, row.id, row


class _Level:
    """The rows of one priority."""

    def __init__(self) -> None:
        self.lanes: dict[str | None, Lane] = {}
        self.turns: deque[str | None] = deque()
        self.count = 0

    @property
    def is_fair(self) -> bool:
        """Due times do not order its rows."""
        return len(self.lanes) > 1 or None not in self.lanes

    def add(self, place: Place) -> None:
        key = place[-1].fairness_key
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane()
            self.turns.append(key)
        lane.add(place)
        self.count += 1

    def discard(self, place: Place) -> None:
        key = place[-1].fairness_key
        lane = self.lanes[key]
        lane.discard(place)
        self.count -= 1
        if not len(lane):
            del self.lanes[key]
            self.turns.remove(key)

    def pop(self) -> Place:
        key = self.turns[0]
        lane = self.lanes[key]
        place = lane.pop()
        self.count -= 1
        if len(lane):
            self.turns.rotate(-1)
        else:
            del self.lanes[key]
            self.turns.popleft()
        return place

    def most_to_keep(self, keep: int) -> dict[str | None, int]:
        """How many rows of each lane make `keep` in all: the long lanes give, not the short ones."""
        left, lanes = keep, len(self.lanes)
        for length in sorted(len(lane) for lane in self.lanes.values()):
            if length * lanes > left:
                break
            left, lanes = left - length, lanes - 1
        most, more = divmod(left, max(1, lanes))
        kept = dict.fromkeys(self.turns, most)
        # Of what is left over, one each to those whose turns come first.
        longer = [key for key in self.turns if len(self.lanes[key]) > most]
        return kept | dict.fromkeys(longer[:more], most + 1)


class Lanes:
    """Rows of one queue; none twice."""

    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._order: list[int] = []  # the priorities that have rows, the highest last
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Place]:
        for level in self._levels.values():
            for lane in level.lanes.values():
                yield from lane

    @property
    def takes_turns(self) -> bool:
        """Whether there are fairness keys: then due times alone do not tell whose turn it is."""
        return any(level.is_fair for level in self._levels.values())

    def add(self, place: Place) -> None:
        """Take a row in that is not there."""
        priority = -place[0]
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            insort(self._order, priority)
        level.add(place)
        self._count += 1

    def discard(self, place: Place) -> None:
        """Take a row out that is there."""
        self._levels[-place[0]].discard(place)
        self._count -= 1
        self._forget_if_empty(-place[0])

    def pop(self, up_to: int | None = None) -> Place | None:
        """Take out the row whose turn it is; None if there is none, or it ranks behind `up_to`."""
        if not self._order:
            return None
        if up_to is not None and (self.rank() or 0) > up_to:
            return None
        priority = self._order[-1]
        place = self._levels[priority].pop()
        self._count -= 1
        self._forget_if_empty(priority)
        return place

    def rank(self) -> int | None:
        """The rank of the row whose turn it is; the lower the sooner, the same scale on every node.

        By priority, then by due time in milliseconds. Where rows have fairness keys none is behind
        those of other nodes that have its priority: their turns are not ours.
        """
        if not self._order:
            return None
        level = self._levels[self._order[-1]]
        if level.is_fair:
            return _rank(self._order[-1], 0)
        return _rank(self._order[-1], _due_ms(level.lanes[None].at(1)))

    def ranks(self, count: int) -> list[int]:
        """As `rank`, of each of the next rows, at most `count`."""
        found: list[int] = []
        for priority in reversed(self._order):
            level, left = self._levels[priority], count - len(found)
            if level.is_fair:
                found += [_rank(priority, 0)] * min(left, level.count)
            else:
                lane = islice(level.lanes[None], left)
                found += [_rank(priority, _due_ms(place)) for place in lane]
            if len(found) >= count:
                break
        return found

    def rank_at(self, number: int) -> int | None:
        """The rank of the row at this place (1: the best), or of the last one if there are fewer.

        With fairness keys it is behind all of its priority: it holds up none of them.
        """
        for priority in reversed(self._order):
            level = self._levels[priority]
            if number <= level.count or priority == self._order[0]:
                if level.is_fair:
                    return _rank(priority, _LAST)
                lane = level.lanes[None]
                return _rank(priority, _due_ms(lane.at(min(number, len(lane)))))
            number -= level.count
        return None

    def is_below_all(self, place: Place) -> bool:
        """Whether this row would be the first to give way, if one had to."""
        lowest = self._order[0]
        if -place[0] != lowest:
            return -place[0] < lowest
        level = self._levels[lowest]
        lane = level.lanes.get(place[-1].fairness_key)
        if lane is None:
            return False
        return len(lane) * len(level.lanes) >= level.count and place > lane.worst

    def trim(self, keep: int) -> list[Place]:
        """Take out what gives way until `keep` are left: low priorities, and of one the long lanes."""
        dropped: list[Place] = []
        while self._count > keep:
            priority = self._order[0]
            level = self._levels[priority]
            most = level.most_to_keep(max(0, keep - (self._count - level.count)))
            dropped += self._cut(priority, partial(_beyond, most))
        return dropped

    def drop_where(self, is_gone: Callable[[DueRow], bool]) -> list[Place]:
        """Take out the rows for which this is true."""
        dropped: list[Place] = []
        for priority in list(self._order):
            dropped += self._cut(priority, lambda _, lane: [p for p in lane if is_gone(p[-1])])
        return dropped

    def _cut(self, priority: int, which: Callable[[str | None, Lane], list[Place]]) -> list[Place]:
        level = self._levels[priority]
        dropped: list[Place] = []
        for key in list(level.lanes):
            gone = which(key, level.lanes[key])
            if not gone:
                continue
            dropped += gone
            level.lanes[key].drop({place[-1].id for place in gone})
            if not len(level.lanes[key]):
                del level.lanes[key]
        level.turns = deque(key for key in level.turns if key in level.lanes)
        level.count -= len(dropped)
        self._count -= len(dropped)
        self._forget_if_empty(priority)
        return dropped

    def _forget_if_empty(self, priority: int) -> None:
        if not self._levels[priority].count:
            del self._levels[priority]
            self._order.remove(priority)


def _beyond(most: dict[str | None, int], key: str | None, lane: Lane) -> list[Place]:
    """The worst of a lane, all but so many."""
    return list(islice(lane, most[key], None))


def _due_ms(place: Place) -> int:
    return to_us(place[1]) // 1000


def _rank(priority: int, due_ms: int) -> int:
    due_ms = min(max(due_ms, 0), RANKS_OF_A_PRIORITY - 1)
    return (_HIGHEST - priority) * RANKS_OF_A_PRIORITY + due_ms
