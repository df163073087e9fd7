"""Every message between actors, in the order in which a task meets them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from duly.actors.runtime import Reply
from duly.storage.claims import Ended
from duly.storage.slots import DueRow
from duly.storage.submitting import NewTask, Submitted
from duly.storage.sweeps import Name


class Submit(NamedTuple):
    """api -> submitter: insert this task."""

    task: NewTask
    reply: Reply[Submitted]


class Ownership(NamedTuple):
    """leases -> prefetcher, ticker, dispatcher, recorder, reaper: what this node owns, and how long surely.

    `epochs`: slot -> epoch. `valid_until`: seconds on the monotonic clock.
    """

    epochs: Mapping[int, int]
    valid_until: float


class Refused(NamedTuple):
    """dispatcher -> leases: PostgreSQL knows another owner of one of these slots."""


class Schedule(NamedTuple):
    """prefetcher, listener, submitter, recorder, api -> ticker: fire these when due.

    `reply`, if asked for, tells how many entries the wheel holds now. Without it, a full wheel leaves to the
    prefetcher what is not due soon.
    """

    rows: Sequence[DueRow]
    reply: Reply[int] | None = None


class Sought(NamedTuple):
    """prefetcher -> ticker, dispatcher: which of these tasks, by queue, are not known here in this version or a later one?"""

    names: Mapping[str, Sequence[Name]]
    reply: Reply[dict[str, list[Name]]]


class TurnedAway(NamedTuple):
    """ticker -> prefetcher: the wheel was full; of these slots read again from there on."""

    since: Mapping[int, datetime]


class Due(NamedTuple):
    """ticker, prefetcher -> dispatcher: these are due now, in due order.

    `brought`: by a refill, the best that the store has; else they have just fallen due.
    """

    rows: Sequence[DueRow]
    brought: bool = False


class Missed(NamedTuple):
    """dispatcher -> catchup: these could not be claimed; perhaps because occurrences were missed."""

    ids: Sequence[UUID]


class Capacity(NamedTuple):
    """reaper -> dispatcher: how many tasks the live workers of a queue run at once."""

    queue: str
    concurrency: int


class Saturated(NamedTuple):
    """dispatcher -> prefetcher: these queues have enough waiting; leave what is due in the store.

    `hungry`: of them, those that have room for the best of it now.
    """

    queues: frozenset[str]
    hungry: frozenset[str]


class SaturatedKeys(NamedTuple):
    """dispatcher -> prefetcher: the same of (queue, concurrency key)."""

    keys: frozenset[tuple[str, str]]
    hungry: frozenset[tuple[str, str]]


class Refilled(NamedTuple):
    """prefetcher -> dispatcher: the best that is due of a queue was sent; `complete`: all of it.

    With `key` only of that concurrency key. Else `last` is the last row sent, if what follows it is in the store alone
    and comes in order of priority and due time, without turns. `until_us`: of what was due by then on the cluster's
    clock, in microseconds; it was read after that.
    """

    queue: str
    complete: bool
    key: str | None = None
    last: DueRow | None = None
    until_us: int = 0


class Freed(NamedTuple):
    """recorder, api, listener -> dispatcher: attempts with these concurrency keys have ended.

    And attempts of these queues, as far as they have `max_in_flight`.
    """

    keys: frozenset[str]
    queues: frozenset[str] = frozenset()


class Controlled(NamedTuple):
    """controls -> dispatcher: what operators have set of queues has changed."""


class Outcomes(NamedTuple):
    """api, reaper -> recorder: these attempts ended. Answers for each whether it was recorded.

    `reported`: by workers; then the ledger keeps those that are stale.
    """

    ended: Sequence[Ended]
    reply: Reply[list[bool]]
    reported: bool = False


TickerMessage = Schedule | Sought | Ownership
DispatcherMessage = Due | Sought | Capacity | Refilled | Freed | Controlled | Ownership
PrefetcherMessage = Ownership | Saturated | SaturatedKeys | TurnedAway
RecorderMessage = Outcomes | Ownership
ReaperMessage = Ownership
