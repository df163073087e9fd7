"""What the dispatcher knows of one queue: how much of it it may publish now, and what.

Two things hold a queue back. The *window*: so much may wait in the stream that no worker has fetched,
twice what the live workers run at once, with a floor. Of short tasks that would be gone before the next claim
has committed: so it is as much as went out in a tenth of a second, if that is more, up to four times as much.
And the *order* among the nodes: each has the due tasks of its own slots, and they share the room. So
a node whose tasks do not all find room tells the others, with what it asks Redis anyway, the rank of
the task half a window down its line; nobody publishes what ranks behind that (and is due more than a
second later). Then the tasks of all nodes go out by priority and due time, but for about a window.

What a node said counts for a second. One that stands still, is gone, or cannot claim, and then
says nothing, holds up nobody for longer.
"""

from collections.abc import Callable

from duly.actors.flow import Flow
from duly.actors.gate import Gate
from duly.actors.ready import ReadyQueue, full_of
from duly.storage.permits import Grant, Rate
from duly.storage.slots import DueRow
from duly.storage.stream_facts import NOTHING_WAITS, Backlog

_LOOK_S = 0.005
_LOOK_MAX_S = 0.05
_LOOK_IDLE_MAX_S = 0.5  # where no worker is known
_SHORT_S = 0.1  # of work that may wait, if that is more than the window of a queue at rest
_SHORT_MOST = 4
_SLACK_MS = 1_000  # of due time: closer than this, order is not worth waiting for


def window(floor: int, concurrency: int) -> int:
    """Tasks that may wait in a stream for workers that run so many at once, if none of them is short."""
    return max(floor, 2 * concurrency)


def has_room(size: int, undelivered: int, waiting: int) -> bool:
    """Whether some of the tasks that wait are published into a window of this size.

    Few are not worth a commit while the workers have enough.
    """
    return size - undelivered >= min(waiting, max(1, size // 4))


class Line:
    """The tasks of one queue that are due here, and what is known of its stream."""

    def __init__(
        self,
        floor: int,
        monotonic: Callable[[], float],
        full: Callable[[], int] = lambda: full_of(1),
    ) -> None:
        """`floor`: the window is at least this large. `monotonic`: seconds. `full`: as of `ReadyQueue`."""
        self.ready = ReadyQueue(full)
        self.firing = 0  # claimed or about to be, not yet published
        self.concurrency = 0
        self.looking = False
        self.look_s = 0.0  # wait before the next look: the first one is at once
        self.asking = False
        self.in_flight = Gate()  # counts where the queue has `max_in_flight`
        self._pace: Rate | None = None
        self._ask_at = 0.0
        self._floor = floor
        self._flow = Flow(monotonic)
        self._backlog = Backlog(0, 0)  # as last told

    @property
    def window(self) -> int:
        """Tasks that may wait in the stream for a worker."""
        at_rest = window(self._floor, self.concurrency)
        most = _SHORT_MOST * window(0, self.concurrency)
        return max(at_rest, min(most, int(self._flow.per_s * _SHORT_S)))

    @property
    def room(self) -> int:
        """How many to publish now."""
        taken = self._backlog.undelivered + self.firing
        return self._space if has_room(self.window, taken, len(self.ready)) else 0

    @property
    def _space(self) -> int:
        return self.window - self._backlog.undelivered - self.firing

    @property
    def _behind(self) -> bool:
        """Another node has what goes before our best."""
        best, lowest = self.ready.rank(), self._backlog.lowest
        return best is not None and lowest is not None and best > lowest

    def is_our_turn(self, others: int) -> bool:
        """Whether this node may use the room: not before others whose tasks go before.

        `others`: so many other nodes have to have said what waits with them, if anything waits here.
        """
        all_fit = self._space >= len(self.ready)
        return not self._behind and (all_fit or self._backlog.others >= others)

    def take(self, limit: int) -> list[DueRow]:
        """Up to `limit` rows whose turn it is, the best first."""
        return self.ready.take(limit, self._backlog.lowest)

    def waiting(self, publishing: int = 0) -> int:
        """What to tell the other nodes; `publishing`: so many of `firing` are on their way with it."""
        if self._space >= len(self.ready) and not self._behind:
            return NOTHING_WAITS
        # What is being claimed stands before those that are ready.
        place = max(1, self.window // 2 - (self.firing - publishing))
        rank = self.ready.rank(place)
        return NOTHING_WAITS if rank is None else rank + _SLACK_MS

    def went_out(self, tasks: int) -> None:
        """So many have been published just now."""
        self._flow.count(tasks)

    def told(self, backlog: Backlog) -> None:
        """Note what Redis answered to a publication."""
        self._backlog = backlog

    def looked(self, backlog: Backlog) -> None:
        """Note what was asked for; ask less often while it does not change."""
        slowest_s = _LOOK_MAX_S if self.concurrency else _LOOK_IDLE_MAX_S
        moved = backlog != self._backlog
        self.look_s = _LOOK_S if moved else min(slowest_s, max(_LOOK_S, 2 * self.look_s))
        self._backlog = backlog

    # The queue's rate

    def pace_pause_s(self, pace: Rate | None, now: float) -> float:
        """Seconds until permits should be asked for again; 0 = now, or none are needed."""
        if pace != self._pace:  # what was said of the old one does not count any more
            self._pace, self._ask_at = pace, 0.0
        return max(0.0, self._ask_at - now)

    def granted(self, grant: Grant, now: float) -> None:
        """Note what was answered; `now` as in `pace_pause_s`."""
        self._ask_at = now + grant.wait_s

    def gave_back(self) -> None:
        """Permits were not used: others of its tasks may have them at once."""
        self._ask_at = 0.0

    @property
    def idle(self) -> bool:
        """Nothing is known that would be missed."""
        busy = self.firing or self.concurrency or self.looking or self.asking
        return self.ready.idle and not busy
