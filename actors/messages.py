"""Every message between actors, in the order in which a task meets them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from duly.actors.runtime import Reply
from duly.storage.claims import Ended
from duly.storage.slots import DueRow
from duly.storage.tasks import NewTask, Submitted


class Submit(NamedTuple):
    """api -> submitter: insert this task."""

    task: NewTask
    reply: Reply[Submitted]


class Ownership(NamedTuple):
    """leases -> prefetcher, ticker, dispatcher, reaper: what this node owns, and how long surely.

    `epochs`: slot -> epoch. `valid_until`: seconds on the monotonic clock.
    """

    epochs: Mapping[int, int]
    valid_until: float


class Schedule(NamedTuple):
    """prefetcher, listener, submitter, recorder, api -> ticker: fire these when due.

    `reply`, if asked for, tells how many entries the wheel holds now.
    """

    rows: Sequence[DueRow]
    reply: Reply[int] | None = None


class Due(NamedTuple):
    """ticker -> dispatcher: these are due now, in due order."""

    rows: Sequence[DueRow]


class Capacity(NamedTuple):
    """reaper -> dispatcher: how many tasks the live workers of a queue run at once."""

    queue: str
    concurrency: int


class Saturated(NamedTuple):
    """dispatcher -> prefetcher: these queues have enough waiting; do not read more of them.

    A queue that is no longer among them is to be read again from its oldest task.
    """

    queues: frozenset[str]


class Outcomes(NamedTuple):
    """api, reaper -> recorder: these attempts ended. Answers for each whether it was recorded."""

    ended: Sequence[Ended]
    reply: Reply[list[bool]]


TickerMessage = Schedule | Ownership
DispatcherMessage = Due | Capacity | Ownership
PrefetcherMessage = Ownership | Saturated
ReaperMessage = Ownership
