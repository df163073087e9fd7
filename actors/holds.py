"""What is held back because enough of its kind runs: of a concurrency key, or of a queue with `max_in_flight`.

When there is room again, is told by whoever records the end of an attempt; and found out by looking now and then.
"""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from duly.actors.key_waits import KeyWaits
from duly.actors.line import Line
from duly.actors.messages import Freed
from duly.storage.claims import Held
from duly.storage.slots import DueRow

_QUEUE = ""  # in the place of a key: the queue itself. No concurrency key is empty.


class Holds:
    """Of the lines of all queues. `line_up(queue)` is called when something may stand in line again."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        queues: Mapping[str, Line],
        line_up: Callable[[str], None],
    ) -> None:
        self._queues = queues
        self._line_up = line_up
        self._waits = KeyWaits(monotonic)

    def wait_s(self, longest_s: float) -> float:
        """Seconds until it is time to look, at most `longest_s`."""
        return self._waits.wait_s(longest_s)

    def look(self) -> None:
        """Try what has waited long enough."""
        for name, key in self._waits.due():
            if not self._free(name, key):
                self._waits.over(name, key)

    def freed(self, message: Freed) -> None:
        """Attempts have ended."""
        some = [(name, _QUEUE) for name in message.queues]
        for name, queue in self._queues.items():
            some += [(name, key) for key in queue.ready.waiting_keys(message.keys)]
        for name, key in some:
            if self._free(name, key):
                self._waits.over(name, key)

    def controlled(self) -> None:
        """A limit may be another one now."""
        self.freed(Freed(frozenset(), frozenset(self._queues)))

    def tried(
        self, name: str, rows: list[DueRow], held: Mapping[UUID, Held], *, limited: bool
    ) -> None:
        """What became of a batch; `limited`: its queue has `max_in_flight`."""
        if limited:
            self._tried_queue(name, rows, held)
        keyed = [row for row in rows if row.concurrency_key is not None]
        if keyed:
            self._tried_keys(name, keyed, held)
        if held:
            of_queue = (row for row in rows if held.get(row.id) in ("queue_full", "queue_busy"))
            for row in of_queue:
                self._queues[name].ready.add(row)
        self._line_up(name)

    def _tried_queue(self, name: str, rows: list[DueRow], held: Mapping[UUID, Held]) -> None:
        why = {held[row.id] for row in rows if row.id in held}.difference(("full", "busy"))
        gate = self._queues[name].in_flight
        gate.tried(len(rows), len(why), 0)
        if gate.blocked:
            self._waits.begin(name, _QUEUE, busy=why == {"queue_busy"})
        elif not why:
            self._waits.over(name, _QUEUE)

    def _tried_keys(self, name: str, keyed: list[DueRow], held: Mapping[UUID, Held]) -> None:
        back = [row for row in keyed if held.get(row.id) in ("full", "busy")]
        blocked = self._queues[name].ready.tried(keyed, back)
        why = {row.concurrency_key: held[row.id] for row in back}
        for key in _keys(keyed):
            if key not in blocked:
                self._waits.over(name, key)
            elif key in why:  # else another batch has found it full: its wait stands
                self._waits.begin(name, key, busy=why[key] == "busy")

    def _free(self, name: str, key: str) -> bool:
        """There may be room; False if nothing waits for it."""
        queue = self._queues.get(name)
        if queue is None:
            return False
        if key == _QUEUE:
            queue.in_flight.free(queue.firing)
            return len(queue.ready) > 0
        if not queue.ready.waits_for(key):
            return False
        queue.ready.free(key)
        self._line_up(name)
        return True


def _keys(rows: Iterable[DueRow]) -> set[str]:
    return {row.concurrency_key for row in rows if row.concurrency_key is not None}
