"""What is set of each queue, for the actors of a node to look at."""

import asyncio
import math
from collections.abc import Iterable

from duly.storage import queues
from duly.storage.queues import Control


class Controls:
    """As last read from PostgreSQL; written by one actor (see `controls`), checked by whoever hears of their state."""

    def __init__(self) -> None:
        self._known: dict[str, Control] = {}
        self.paused: frozenset[str] = frozenset()
        """The queues that are paused."""
        self.known_at = -math.inf
        """They were the same at that instant or later, on the monotonic clock."""
        self.news = asyncio.Event()
        """Set when they have changed, or may have: they should be read."""
        self._state = -1

    def of(self, queue: str) -> Control:
        """What is set of `queue`; nothing, if it is not known."""
        return self._known.get(queue) or Control(queue)

    def check(self, state: int, asked_at: float) -> None:
        """PostgreSQL was asked at `asked_at` for their state (see `queues.state`), and said this."""
        if state == self._state:
            self.known_at = max(self.known_at, asked_at)
        else:
            self.news.set()

    def update(self, read: Iterable[Control], asked_at: float) -> bool:
        """Take over what the table says, asked at `asked_at`; answers whether anything has changed."""
        before, self._known = self._known, {one.queue: one for one in read}
        self._state, self.known_at = queues.state(self._known.values()), asked_at
        self.paused = frozenset(name for name, one in self._known.items() if one.paused)
        return self._known != before
