"""What a caller may give, and how it is written as JSON."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict
from uuid import UUID

from duly.nodes import exact_json
from duly.nodes.client.schedules import Schedule, schedule_body
from duly.nodes.client.values import Duration, When, duration, moment


class TaskOptions(TypedDict, total=False):
    """Options of a submission; what is left out has the node's default."""

    run_at: When | None
    """When it is due; with neither `run_at` nor `delay` it is due now."""
    delay: Duration | None
    """How long from now it is due."""
    schedule: Schedule | None
    """For a periodic task; see `Every` and `Cron`."""
    overrun: Literal["skip", "queue"]
    """What becomes of an occurrence that comes due while the one before still runs."""
    queue: str
    priority: int
    """0 to 9, 9 first, among due tasks of one queue that wait for capacity."""
    max_retries: int
    backoff: Mapping[str, Any]
    """`{"kind": "exponential"|"linear"|"fixed", "delay", "factor", "max_delay", "jitter"}`."""
    timeout: Duration
    """Longest run of one attempt."""
    misfire_grace: Duration | None
    """Do not run it if it is later than this."""
    on_lost: Literal["retry", "fail"]
    """What a worker's death means; `fail` is for work that must never start twice."""
    tags: Mapping[str, str]
    concurrency_key: str | None
    """At most `concurrency_limit` tasks with this key run at once, over all queues."""
    concurrency_limit: int
    """1 to 10 000, default 1; only with a `concurrency_key`."""
    fairness_key: str | None
    """Due tasks of one queue and priority take turns by it."""
    region: str
    """Which region it belongs to; that of the cluster if none is given."""
    name: str | None
    """Of unfinished tasks each has its own: a second submission with it and the same definition returns the first."""
    on_success: "FollowUp | None"
    """The task that follows when this one completes."""
    on_failure: "FollowUp | None"
    """The task that follows when this one ends failed."""
    after: Sequence[UUID | str] | None
    """Ids of tasks that have to complete before it is due."""
    idempotency_key: str | None
    """A second submission with this key within 24 h returns the first task; None: there is no key."""
    id: UUID | str


class FollowUp(TypedDict, total=False):
    """A task that follows another one; `type` is required. The options mean what they mean for a task."""

    type: str
    payload: Any
    delay: Duration
    """How long after the end of the other one it is due."""
    queue: str
    priority: int
    max_retries: int
    backoff: Mapping[str, Any]
    timeout: Duration
    misfire_grace: Duration | None
    on_lost: Literal["retry", "fail"]
    tags: Mapping[str, str]
    concurrency_key: str | None
    concurrency_limit: int
    fairness_key: str | None
    on_success: "FollowUp | None"
    on_failure: "FollowUp | None"


class NewTask(TaskOptions, total=False):
    """One task of a batch; `type` is required."""

    type: str
    payload: Any


class TaskChanges(TypedDict, total=False):
    """What `update` may change in a pending task; of these `schedule`, `overrun` and `misfire_grace` also
    while it runs."""

    run_at: When
    delay: Duration
    payload: Any
    priority: int
    max_retries: int
    backoff: Mapping[str, Any]
    timeout: Duration
    tags: Mapping[str, str]
    schedule: Schedule
    overrun: Literal["skip", "queue"]
    misfire_grace: Duration | None
    concurrency_key: str | None
    concurrency_limit: int
    fairness_key: str | None


class QueueChanges(TypedDict, total=False):
    """What `update_queue` may set; None ends a limit."""

    paused: bool
    rate: float | None
    """Tasks a second, all nodes together."""
    burst: int | None
    """How many may go at once after a silence; None: what comes in a tenth of a second."""
    max_in_flight: int | None
    """Tasks dispatched and not recorded, at most."""


_TIMES: Final = frozenset({"run_at"})
_DURATIONS: Final = frozenset({"delay", "timeout", "misfire_grace"})
_FOLLOW_UPS: Final = frozenset({"on_success", "on_failure"})
_LEFT_OUT: Final = frozenset({"run_at", "delay", "schedule"})


def submission(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a submission; raises TypeError or ValueError that names the option."""
    if "type" not in task:
        raise TypeError("a task needs a type")
    known = NewTask.__annotations__.keys() | TaskOptions.__annotations__.keys()
    body = _body(task, known)
    # None means "not given" for those that together say when; elsewhere null has its own meaning.
    return {k: v for k, v in body.items() if v is not None or k not in _LEFT_OUT}


def make_once(task: dict[str, Any]) -> bool:
    """Give a task a key by which it can be sent twice, if it has none; whether it can be.

    A periodic task with a name needs no key: the name is enough.
    """
    if task.get("name") is not None and task.get("schedule") is not None:
        return True
    task.setdefault("idempotency_key", uuid.uuid4().hex)
    return task["idempotency_key"] is not None


def changes(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a change; raises TypeError or ValueError that names the option."""
    if not wanted:
        raise TypeError("nothing to change")
    return _body(wanted, TaskChanges.__annotations__.keys())


def queue_changes(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a change of a queue; raises TypeError that names the option."""
    if not wanted:
        raise TypeError("nothing to change")
    return _body(wanted, QueueChanges.__annotations__.keys())


def encode(body: object) -> bytes:
    """Write a request's body; raises TypeError or ValueError for what is not JSON."""
    return exact_json.encode(body)


def _body(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise TypeError(f"unknown option {unknown[0]!r}")
    body: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            body[name] = None
        elif name in _TIMES:
            body[name] = moment(name, value)
        elif name in _DURATIONS:
            body[name] = duration(name, value)
        elif name in _FOLLOW_UPS:
            body[name] = _body(value, FollowUp.__annotations__.keys())
        elif name == "schedule":
            body[name] = schedule_body(value)
        else:
            body[name] = value
    return body
