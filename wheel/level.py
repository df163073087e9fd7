"""One level of the wheel: a ring of slots that covers two turns, and which of them are occupied.

A slot is a plain dict `key -> due_us` in insertion order, so that cancelling is a `del`, leaves
nothing behind to skip later, and entries with the same due stay in the order they came in.
Dicts of atomic keys and ints are also invisible to the garbage collector.

Slot numbers are absolute (`due_us >> shift`). A group is `GROUP` neighbouring slots: exactly one
slot of the level above. The ring holds two groups, the current and the next one, each with a
bitmask of its occupied slots, so the next occupied slot is found without looking at empty ones.
"""

from typing import Generic, TypeVar

K = TypeVar("K")

GROUP_BITS = 10
"""A group is 1024 slots: wide enough that a task within the horizon moves down only once."""

GROUP = 1 << GROUP_BITS
_RING_MASK = 2 * GROUP - 1
_GROUP_MASK = GROUP - 1

_BYTES_PER_ENTRY_MAX = 256  # looked at when a slot shrinks to a power of two; a full dict has 30-70


class Level(Generic[K]):
    """Slots of `1 << shift` microseconds each; the wheel decides which entries belong here."""

    __slots__ = ("_occupied", "_slots", "shift")

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self._slots: list[dict[K, int] | None] = [None] * (2 * GROUP)
        self._occupied = [0, 0]

    def add(self, key: K, due_us: int) -> None:
        """Put `key`, which is not in this level, into the slot of `due_us`. O(1)."""
        at = (due_us >> self.shift) & _RING_MASK
        slot = self._slots[at]
        if slot is None:
            self._slots[at] = {key: due_us}
            self._occupied[at >> GROUP_BITS] |= 1 << (at & _GROUP_MASK)
        else:
            slot[key] = due_us

    def remove(self, key: K, due_us: int) -> None:
        """Take `key` out of the slot of `due_us`. O(1). Raises KeyError if it is not there."""
        at = (due_us >> self.shift) & _RING_MASK
        slot = self._slots[at]
        if slot is None:
            raise KeyError(key)
        del slot[key]
        left = len(slot)
        if not left:
            self._clear(at)
        elif not left & (left - 1) and slot.__sizeof__() > left * _BYTES_PER_ENTRY_MAX:
            self._slots[at] = dict(slot)  # a dict keeps its size when keys leave; the copy does not

    def first(self, position_us: int) -> int | None:
        """Number of the earliest occupied slot, seen from the wheel's position."""
        group = position_us >> (self.shift + GROUP_BITS)
        occupied = self._occupied[group & 1]
        if not occupied:
            group += 1
            occupied = self._occupied[group & 1]
            if not occupied:
                return None
        return (group << GROUP_BITS) + (occupied & -occupied).bit_length() - 1

    def peek(self, number: int) -> dict[K, int]:
        """The entries of slot `number`, empty or not; not to be changed by the caller."""
        return self._slots[number & _RING_MASK] or {}

    def take(self, number: int) -> dict[K, int]:
        """Empty slot `number` and return what was in it."""
        at = number & _RING_MASK
        slot = self._slots[at]
        if slot is None:
            return {}
        self._clear(at)
        return slot

    def take_due(self, first: int, now_us: int, enough: int) -> tuple[list[dict[K, int]], int]:
        """Take what is due at `now_us` out of slot `first` and those after it in its group.

        `first` is occupied and not after now. Stops after the slot that makes it `enough` (>= 1)
        entries. Returns non-empty slots in order, and the instant up to which all is taken. This
        is the loop that every expiry passes through, so it works on the bits themselves.
        """
        shift = self.shift
        half = (first >> GROUP_BITS) & 1
        base = half * GROUP
        group_end = first | _GROUP_MASK
        last = min(group_end, ((now_us + 1) >> shift) - 1)  # the last slot that is wholly due
        occupied = self._occupied[half]
        slots = self._slots
        whole = occupied & ((2 << (last & _GROUP_MASK)) - 1) if last >= first else 0
        taken: list[dict[K, int]] = []
        while whole:
            lowest = whole & -whole
            whole ^= lowest
            occupied ^= lowest
            bit = lowest.bit_length() - 1
            slot = slots[base + bit]
            assert slot is not None, "an occupied bit without a slot"
            slots[base + bit] = None
            taken.append(slot)
            enough -= len(slot)
            if enough <= 0:
                self._occupied[half] = occupied
                return taken, (((first & ~_GROUP_MASK) + bit + 1) << shift) - 1
        self._occupied[half] = occupied
        if last == group_end:
            return taken, ((last + 1) << shift) - 1
        part = self._take_part(now_us)
        if part:
            taken.append(part)
        return taken, now_us

    def _take_part(self, now_us: int) -> dict[K, int]:
        """Take what is due at `now_us` out of the slot that now is in, leave what is not."""
        at = (now_us >> self.shift) & _RING_MASK
        slot = self._slots[at]
        if slot is None:
            return {}
        due = {key: due_us for key, due_us in slot.items() if due_us <= now_us}
        if len(due) == len(slot):
            self._clear(at)
        else:
            for key in due:
                del slot[key]
        return due

    def spread(self, slot: dict[K, int]) -> None:
        """Fill the group that `slot`, of the level above, stands for; that group is empty."""
        shift = self.shift
        slots = self._slots
        half = -1
        occupied = 0
        for key, due_us in slot.items():
            at = (due_us >> shift) & _RING_MASK
            child = slots[at]
            if child is None:
                slots[at] = {key: due_us}
                occupied |= 1 << (at & _GROUP_MASK)
                half = at >> GROUP_BITS
            else:
                child[key] = due_us
        if occupied:
            assert not self._occupied[half], "two groups would share one half of the ring"
            self._occupied[half] = occupied

    def _clear(self, at: int) -> None:
        self._slots[at] = None
        self._occupied[at >> GROUP_BITS] ^= 1 << (at & _GROUP_MASK)
