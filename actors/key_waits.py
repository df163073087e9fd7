"""When to try a concurrency key again that had no room, if nobody tells that a place is free.

Whoever records the end of an attempt tells all nodes of its key. That may get lost, so each key is also looked at
after a while, that doubles. A key whose lock another claim held was not counted at all: it is tried again at once.
"""

import heapq
import random
from collections.abc import Callable

FIRST_S = 0.25
LONGEST_S = 2.0
_BUSY_S = 0.02


class KeyWaits:
    """One wait for each queue and key."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waits: dict[
            tuple[str, str], tuple[float, float]
        ] = {}  # until when, and how long it is
        self._heap: list[tuple[float, str, str]] = []

    def begin(self, queue: str, key: str, *, busy: bool) -> None:
        """A key had no room, or (`busy`) was not counted."""
        _, before_s = self._waits.get((queue, key), (0.0, 0.0))
        wait_s = before_s if busy else min(LONGEST_S, max(FIRST_S, 2 * before_s))
        sleep_s = (_BUSY_S if busy else wait_s) * random.uniform(0.5, 1.0)
        until = self._monotonic() + sleep_s
        self._waits[queue, key] = (until, wait_s)
        heapq.heappush(self._heap, (until, queue, key))

    def over(self, queue: str, key: str) -> None:
        """The wait, if there is one, is over, and the next one a short one."""
        self._waits.pop((queue, key), None)

    def due(self) -> list[tuple[str, str]]:
        """The queues and keys to be tried now."""
        found: list[tuple[str, str]] = []
        while self._heap and self._heap[0][0] <= self._monotonic():
            until, queue, key = heapq.heappop(self._heap)
            known = self._waits.get((queue, key))
            if known is not None and known[0] == until:
                found.append((queue, key))
                # Unless it is tried until then, it is looked at again, and ends if nothing waits for it.
                again = self._monotonic() + LONGEST_S
                self._waits[queue, key] = (again, known[1])
                heapq.heappush(self._heap, (again, queue, key))
        return found

    def wait_s(self, longest_s: float) -> float:
        """Seconds until the next is due, at most `longest_s`."""
        if not self._heap:
            return longest_s
        return min(longest_s, max(0.0, self._heap[0][0] - self._monotonic()))
