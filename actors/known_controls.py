"""What is set of each queue, for the actors of a node to look at."""

from collections.abc import Iterable

from duly.storage.queues import Control


class Controls:
    """As last read from PostgreSQL; written by one actor (see `controls`)."""

    def __init__(self) -> None:
        self._known: dict[str, Control] = {}
        self.paused: frozenset[str] = frozenset()
        """The queues that are paused."""

    def of(self, queue: str) -> Control:
        """What is set of `queue`; nothing, if it is not known."""
        return self._known.get(queue) or Control(queue)

    def update(self, read: Iterable[Control]) -> bool:
        """Take over what the table says now; answers whether anything has changed."""
        before, self._known = self._known, {one.queue: one for one in read}
        self.paused = frozenset(name for name, one in self._known.items() if one.paused)
        return self._known != before
