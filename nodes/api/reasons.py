"""Why a task has not run: each reason with its facts, and the sentence for whoever asks."""

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec


class Reason(msgspec.Struct, tag_field="code", kw_only=True):
    """`message` is one sentence in plain words; the other fields are the facts in it."""

    message: str


class Finished(Reason, tag="finished"):
    """It has ended."""

    outcome: str
    finished_at: datetime


class Paused(Reason, tag="paused"):
    """A client paused it. `by`: the name of the token; null if it is not known."""

    by: str | None
    since: datetime | None


class NotDue(Reason, tag="not_due"):
    """Its time has not come."""

    due: datetime


class WaitingForTasks(Reason, tag="waiting_for_tasks"):
    """Others have to complete first. `tasks`: some of these, each with its status; `left`: how many there are."""

    tasks: dict[str, str]
    left: int


class BackOff(Reason, tag="backoff"):
    """Its last attempt failed; attempt number `attempt` of `attempts` may begin at `until`."""

    until: datetime
    attempt: int
    attempts: int


class GivenBack(Reason, tag="given_back"):
    """A worker got it and did not begin it, since `detail`; it comes again at `until`."""

    until: datetime
    detail: str


class RedisUnreachable(Reason, tag="redis_unreachable"):
    """Redis, or a majority of the lease servers, does not do what it should for the node asked."""

    since: datetime
    detail: str


class QueueUnusable(Reason, tag="queue_unusable"):
    """Something else is in the place of a key of its queue."""

    queue: str
    detail: str


class SlotUnowned(Reason, tag="slot_unowned"):
    """No node acts on its slot. `since` null: not known, or nobody ever has."""

    slot: int
    since: datetime | None
    last_owner: str | None


class QueuePaused(Reason, tag="queue_paused"):
    """Its queue is paused. `by`: the name of the token."""

    queue: str
    by: str | None
    since: datetime


class NoWorker(Reason, tag="no_worker"):
    """No live worker reads its queue."""

    queue: str


class WaitingForCapacity(Reason, tag="waiting_for_capacity"):
    """So many tasks as may wait in the stream do. `ahead`: due tasks of the queue that go before it.

    `ahead_exact` false: there are more.
    """

    queue: str
    window: int
    backlog: int
    workers: int
    ahead: int
    ahead_exact: bool


class WaitingForKey(Reason, tag="waiting_for_key"):
    """As many tasks run with its concurrency key as `limit` allows.

    `running`: so many at least; `holders`: the ids of the first of them.
    """

    key: str
    limit: int
    running: int
    holders: list[UUID]


class WaitingForInFlight(Reason, tag="waiting_for_in_flight"):
    """As many tasks of its queue run as `max_in_flight` allows."""

    queue: str
    max_in_flight: int
    running: int


class WaitingForRate(Reason, tag="waiting_for_rate"):
    """Its queue is held to `rate` tasks a second; `ahead` as above, of the same queue."""

    queue: str
    rate: float
    next_token_at: datetime
    ahead: int
    ahead_exact: bool


class DueNow(Reason, tag="due_now"):
    """Nothing holds it: its owner is about to fire it. `ahead` as above.

    `failing`: with which of `redis` and `postgres` the owner has said that it has trouble.
    """

    due: datetime
    owner: str
    failing: list[str]
    ahead: int
    ahead_exact: bool


class InOutbox(Reason, tag="in_outbox"):
    """It is for another region, and was not handed to it (yet). `detail`: what that region said last."""

    region: str
    state: Literal["waiting", "delivered", "refused", "cancelled"]
    since: datetime
    detail: str | None


class InStream(Reason, tag="in_stream"):
    """A node claimed it and published it; no worker has fetched it. `backlog`: that wait as it does."""

    node: str
    since: datetime
    queue: str
    backlog: int
    workers: int


class Running(Reason, tag="running"):
    """A worker has it. `silent_s`: since it was last heard of; null if that is not known.

    `progress`: the share that is done, 0 to 1, and its text, if its handler tells them; the text is null for who may
    not see payloads.
    """

    worker: str
    since: datetime
    silent_s: float | None
    progress: float | None = None
    progress_text: str | None = None


class Claimed(Reason, tag="claimed"):
    """A node claimed it, and it is not in the stream: on its way there, or on its way back."""

    node: str
    since: datetime


AnyReason = (
    Finished | Paused | WaitingForTasks | NotDue | BackOff | GivenBack | RedisUnreachable | QueueUnusable | SlotUnowned | QueuePaused
    | NoWorker | WaitingForKey | WaitingForInFlight | WaitingForRate | WaitingForCapacity | DueNow | InOutbox | InStream | Running | Claimed
)  # fmt: skip
