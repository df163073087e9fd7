"""Which store holds which slots, and so where a task is: a slot is a byte of a hash of its id."""

import hashlib
from collections.abc import Collection
from itertools import pairwise
from uuid import UUID

from duly.storage.slots import SLOTS


def slot_of(task_id: UUID) -> int:
    """As the table computes it."""
    return hashlib.sha256(task_id.bytes).digest()[0]


def slot_of_key(key: str) -> int:
    """Where an idempotency key or a concurrency key is at home, in a cluster of several stores."""
    return hashlib.sha256(key.encode()).digest()[0]


def ranges(slots: Collection[int]) -> str:
    """Slots as people write them: `0-127`, `3, 10-12`, `none`."""
    ordered = sorted(slots)
    if not ordered:
        return "none"
    breaks = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(ordered)) if b > a + 1)]
    parts = [ordered[begin:end] for begin, end in pairwise([*breaks, len(ordered)])]
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


class Layout:
    """What this process knows of it; each store tells for itself (`learn`).

    Of a store that does not answer, what it said last counts.
    """

    def __init__(self, names: Collection[str]) -> None:
        """`names`: what to call each store, in their order."""
        self.names = tuple(names)
        self._held: list[frozenset[int]] = [frozenset() for _ in self.names]

    def learn(self, store: int, slots: Collection[int]) -> None:
        """This store has said which slots it holds."""
        self._held[store] = frozenset(slots)

    def held(self, store: int) -> frozenset[int]:
        """The slots of a store."""
        return self._held[store]

    def holds(self, store: int, task_id: UUID) -> bool:
        """Whether a task is in a store."""
        return slot_of(task_id) in self._held[store]

    def store_of(self, slot: int) -> int | None:
        """Where a slot is; None while it moves, or while its store has not been reached yet."""
        return next((at for at, held in enumerate(self._held) if slot in held), None)

    @property
    def unknown(self) -> list[int]:
        """Slots of which it is not known where they are."""
        return sorted(set(range(SLOTS)).difference(*self._held))
