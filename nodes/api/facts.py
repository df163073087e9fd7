"""What is known of why a task has not run, gathered from the store and Redis (explain)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from duly.actors.ownership import Owner
from duly.storage.explain import Ahead, Standing
from duly.storage.permits import Rate
from duly.storage.sight import Progress, QueueSight


class Trouble(NamedTuple):
    """Redis as the node asked sees it: what does not work, and since when."""

    since: datetime
    detail: str


class RateNow(NamedTuple):
    """A queue's rate, and how long until one more of its tasks may go."""

    limit: Rate
    wait_s: float


class Facts(NamedTuple):
    """What is known at the time `at`.

    None: `redis`: it does what it should; `broken`: the queue's keys are right; `slot`: not known, or
    not asked; `queue`: not known, or not asked; `rate`: it has none, or as before; `ahead`: not due.
    `holders`: of its concurrency key, if it is due and has one; at most as many as may be.
    `failing`: with what the slot's owner has trouble, as it said at its last beat.
    `progress`: how far its attempt is, if its worker tells. `waited_for`: some of those that it waits for, with their statuses.
    `in_flight`: tasks of its queue that run, if it is due and the queue has such a limit.
    """

    at: datetime
    task: Standing
    window_floor: int
    redis: Trouble | None = None
    broken: str | None = None
    slot: Owner | None = None
    queue: QueueSight | None = None
    rate: RateNow | None = None
    ahead: Ahead | None = None
    holders: Sequence[UUID] = ()
    in_flight: int | None = None
    failing: Sequence[str] = ()
    progress: Progress | None = None
    waited_for: Mapping[UUID, str] = MappingProxyType({})
