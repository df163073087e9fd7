"""More due than a queue holds: whatever happens meanwhile, what is taken was due before all that is left.

Rows fall due, some are told of ahead of their time, late or not at all; the store is read slowly, and now and then
in vain.
"""

import random
from dataclasses import dataclass, field
from unittest import mock
from uuid import UUID

from firing_rig import due_row
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.actors import ready
from duly.actors.lane import order_of
from duly.actors.ready import ReadyQueue
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us

BROUGHT, LOW = 8, 3
AHEAD_S = 1  # in which fewer fall due than are kept aside


@dataclass
class Store:
    """Pending tasks, who has been told of them, and a queue that is refilled from them step by step."""

    queue: ReadyQueue
    now_s: int = 0
    pending: dict[UUID, DueRow] = field(default_factory=dict)
    untold: dict[UUID, DueRow] = field(default_factory=dict)  # in the wheel
    unheard: set[UUID] = field(default_factory=set)  # nobody but the store knows of them
    taken: list[UUID] = field(default_factory=list)
    reading: list[DueRow] | None = None
    read_at_us: int = 0
    last: DueRow | None = None
    complete: bool = False
    asked: bool = False
    begun: bool = False  # some of a refill has been brought, not all
    refills: int = 0
    looks: int = 0  # at the clock: it never shows the same

    def now_us(self) -> int:
        self.looks += 1
        return to_us(due_row(self.now_s).next_run_at) + self.looks

    def submit(self, in_s: int, priority: int, *, heard: bool = True) -> None:
        row = due_row(self.now_s + in_s, priority=priority)
        self.pending[row.id] = row
        if heard:
            self.untold[row.id] = row
            self.tell()
        else:
            self.unheard.add(row.id)

    def tell(self) -> None:
        """What falls due comes in due order, ahead of its time."""
        until = due_row(self.now_s + AHEAD_S).next_run_at
        for row in sorted(self.untold.values(), key=lambda row: row.next_run_at):
            if row.next_run_at <= until:
                del self.untold[row.id]
                self.queue.add(row._replace(ticked_us=self.now_us()))

    def sweep(self) -> None:
        """It leaves out what is due of a saturated queue."""
        if not self.queue.saturated:
            for row in self.due():
                if row.id not in self.untold and not self.queue.knows(row.id, row.version):
                    self.unheard.discard(row.id)
                    self.queue.add(row._replace(ticked_us=self.now_us()))

    def due(self) -> list[DueRow]:
        now = due_row(self.now_s).next_run_at
        found = [row for row in self.pending.values() if row.next_run_at <= now]
        return sorted(found, key=order_of)

    def refill(self, *, in_vain: bool = False) -> None:
        """One step of it."""
        if not self.asked:
            if self.queue.hungry:
                self.asked = True
                self.queue.asked(self.now_us())
        elif self.reading is None:
            found = self.due()
            self.reading = found[:BROUGHT]
            self.complete = len(found) < BROUGHT
            self.last = None if self.complete else self.reading[-1]
            self.read_at_us = self.now_us()
        elif in_vain:
            self.reading = None
        elif self.reading:
            self.begun = True
            row = self.reading.pop(0)
            if row.id in self.pending:  # else it is known to be claimed
                self.queue.add(row._replace(ticked_us=self.read_at_us), brought=True)
        else:
            self.queue.refilled(self.complete, self.last, self.read_at_us)
            # What was seen is known of from then on, unless more than fits was turned away.
            self.reading, self.asked, self.begun = None, False, False
            self.refills += 1

    def take(self, count: int, *, claims: bool = True) -> None:
        rows = self.queue.take(count)
        if not claims:
            for row in rows:
                self.queue.add(row, again=True)
            return
        for row in rows:
            del self.pending[row.id]
            self.unheard.discard(row.id)
            self.taken.append(row.id)
        if rows and not self.begun:
            told = self.pending.keys() - self.untold.keys() - self.unheard
            left = min((order_of(self.pending[one]) for one in told), default=None)
            assert left is None or order_of(rows[-1]) <= left

    def whole_refill(self) -> None:
        refills = self.refills
        while self.refills == refills and (self.asked or self.queue.hungry):
            self.refill()

    def drain(self) -> None:
        """Until nothing is left, with as few refills as that takes; the rest, nobody has told of."""
        before, count = self.refills, len(self.pending)
        for _ in range(2 * count + 30):
            self.now_s += 1
            self.tell()
            self.sweep()
            self.whole_refill()
            while self.queue.asks(self.now_us()):
                self.whole_refill()
            self.take(2 * BROUGHT)
            if not self.pending and not self.queue.saturated:
                break
        assert not self.pending
        assert not self.queue.saturated
        assert len(self.taken) == len(set(self.taken))
        assert self.refills - before <= count + 5


STEPS = st.lists(
    st.sampled_from(
        ["fall due"] * 4 + ["late", "unheard", "time", "time", "time", "take", "take", "refill", "refill", "refill", "refill"]
        + ["take", "take", "no claim", "in vain", "better", "sweep"]
    ),
    min_size=20,
    max_size=100,
)  # fmt: skip


@settings(max_examples=60)
@given(STEPS, st.sampled_from([10, 40]), st.integers(0, 2**32))
def test_nothing_is_taken_before_what_was_due_before_it_and_nothing_is_lost(
    steps: list[str], full: int, seed: int
) -> None:
    patched = mock.patch.multiple(ready, BROUGHT=BROUGHT, LOW=LOW, _MAKES_WAY=2, _ASIDE=0.25)
    chance = random.Random(seed)
    with patched:
        store = Store(ReadyQueue(lambda: full))
        for step in steps:
            do(store, step, chance)
        store.drain()


def do(store: Store, step: str, chance: random.Random) -> None:
    match step:
        case "fall due":
            for _ in range(chance.randrange(12)):
                store.submit(chance.randrange(4), 5)
        case "late":
            store.submit(-chance.randrange(20), chance.choice((5, 5, 7)))
        case "unheard":
            store.submit(chance.randrange(-5, 8), chance.choice((5, 5, 7)), heard=False)
        case "better":
            for _ in range(chance.randrange(12)):
                store.submit(chance.randrange(8), 9)
        case "time":
            store.now_s += chance.randrange(3)
            store.tell()
        case "refill":
            for _ in range(chance.choice((1, 1, 2, 12))):
                store.refill()
        case "in vain":
            store.refill(in_vain=True)
        case "take":
            store.take(chance.randrange(12))
        case "no claim":
            store.take(chance.randrange(4), claims=False)
        case "sweep":
            store.sweep()
