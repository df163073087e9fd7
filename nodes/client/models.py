"""Tasks, runs, the ledger, alerts, queues, nodes and workers as the API shows them. Numbers in payload and result are exact.

Fields that a newer node adds are ignored, fields that an older one lacks have their default.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class Task(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A task. Times are aware datetimes, durations seconds."""

    id: UUID
    type: str
    status: str
    """`pending`, `running`, `completed`, `failed` or `cancelled`."""
    queue: str = "default"
    payload: Any = None
    paused: bool = False
    next_run_at: datetime | None = None
    """When it is next due; None once it is finished."""
    version: int = 0
    """Grows with every claim and change; the value for `if_match`."""
    slot: int | None = None
    owner: str | None = None
    retry_count: int = 0
    max_retries: int = 3
    backoff: dict[str, Any] | None = None
    timeout: float = 300
    schedule: dict[str, Any] | None = None
    overrun: str = "skip"
    misfire_grace: float | None = None
    on_lost: str = "retry"
    priority: int = 5
    idempotency_key: str | None = None
    tags: dict[str, str] | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    fairness_key: str | None = None
    region: str | None = None
    name: str | None = None
    forwarding: dict[str, Any] | None = None
    """Of a task that is on its way to another region, or was refused there: its `state`, and why."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    result: Any = None
    error: Any = None
    on_success: dict[str, Any] | None = None
    on_failure: dict[str, Any] | None = None
    after: tuple[UUID, ...] = ()
    waits_for: tuple[UUID, ...] = ()
    """Those of `after` that have not completed yet."""
    parent: dict[str, Any] | None = None
    """The task that this one follows: `id`, `token`, `occurrence`, `status`, `result`, `error`."""
    hidden: tuple[str, ...] = ()
    """Fields that are None because the token may not see them."""

    async def wait(self, timeout_s: float | None = None) -> "Task":
        """Return the task once it is over, as `Client.wait`; for a task that a `Client` returned, in its loop.

        Raises RuntimeError for another one: use `wait(task.id)` of the client.
        """
        loop, wait = self.__dict__.get(_WAIT, (None, None))
        if wait is None or loop is not asyncio.get_running_loop():
            raise RuntimeError("this task is of no client in this loop: use client.wait(task.id)")
        over: Task = await wait(self.id, timeout_s)
        return over


_WAIT = "_wait"


def may_wait(task: Task, wait: Callable[[UUID, float | None], Awaitable[Task]]) -> Task:
    """Let `task.wait()` call this, in the loop that runs now."""
    msgspec.structs.force_setattr(task, _WAIT, (asyncio.get_running_loop(), wait))
    return task


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, what is set of it, and what is in it. None: no limit, or not known now."""

    queue: str
    paused: bool = False
    paused_by: str | None = None
    paused_at: datetime | None = None
    rate: float | None = None
    """Tasks a second, all nodes together."""
    burst: int | None = None
    """How many may go at once after a silence; None: what comes in a tenth of a second."""
    max_in_flight: int | None = None
    """Tasks dispatched and not recorded, at most."""
    updated_at: datetime | None = None
    updated_by: str | None = None
    pending: int = 0
    running: int = 0
    backlog: int | None = None
    """Tasks in the stream that no worker has fetched."""
    workers: int | None = None
    next_token_at: datetime | None = None
    """When the rate lets the next task go; None: now."""
    exact: bool = True
    """Whether `pending` and `running` are counted, not estimated."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One finished attempt, or an occurrence that was skipped."""

    task_id: UUID
    outcome: str
    """`completed`, `failed`, `lost`, `timed_out`, `cancelled` or `skipped`."""
    token: int | None = None
    occurrence: datetime | None = None
    """When the occurrence was due."""
    attempt: int | None = None
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: Any = None
    result: Any = None
    follow_up: UUID | None = None
    """The task that followed this outcome."""
    hidden: tuple[str, ...] = ()
    """Fields that are None because the token may not see them."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task has not run."""

    task_id: UUID
    status: str
    at: datetime
    reasons: tuple[dict[str, Any], ...]
    """What holds it now is first. Each has a `code`, a `message` for people, and the facts in it."""


class LiveNode(msgspec.Struct, frozen=True, kw_only=True):
    """A live node, as it said at its last beat. Durations in seconds."""

    id: str
    host: str
    pid: int
    slots: int
    """How many of the 256 it holds."""
    started_at: datetime
    tzdata: str | None = None
    version: str | None = None
    wheel_entries: int | None = None
    ready_entries: int | None = None
    lease_age_s: float | None = None
    lag_p99_s: float | None = None
    """From the due time to the publication, of the last five minutes."""
    clock_offset_s: float | None = None
    redis: bool | None = None
    """Whether all of its work with Redis succeeds."""
    postgres: bool | None = None


class LiveWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker. What it does not tell is None."""

    id: str
    host: str | None = None
    pid: int | None = None
    queues: tuple[str, ...] | None = None
    concurrency: int = 1
    running: int | None = None
    held: int = 0
    """Tasks that it has taken and not reported."""
    sdk: str | None = None
    seen_s: float | None = None
    """Seconds since it was last heard of."""
    unknown_types: tuple[str, ...] = ()
    """Of tasks that it gave back, since it has no handler for them."""
    unreadable: tuple[str, ...] = ()
    """Why it gave back others, whose payload it cannot decode: `type: reason`."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A watched schedule that is silent for too long, or was paused after too many failures."""

    id: int
    kind: str
    """`silent` or `auto_paused`."""
    task_id: UUID
    type: str
    queue: str
    since: datetime
    """Of a silent one, when it last completed (or began to be watched)."""
    raised_at: datetime
    cleared_at: datetime | None = None
    """None as long as it lasts."""
    details: Any = None


class RejectedReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that was refused, as its attempt had ended or was never made."""

    token: int
    outcome: str
    worker: str | None = None
    received_at: datetime | None = None
    reason: str | None = None
    error: Any = None
    times: int = 1
    """How often it came."""


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A due time of a task, and what became of it."""

    occurrence: datetime
    verdict: str | None = None
    """`completed`, `failed`, `cancelled` or `skipped`; None: it is still open."""
    reason: str | None = None
    """Why it was skipped: `overrun`, `misfire`, `paused`, `ended`, `replaced` or `expired`."""
    through: datetime | None = None
    """This stands for every later occurrence, too, up to then."""
    recorded_at: datetime | None = None
    attempts: tuple[Run, ...] = ()
    rejected: tuple[RejectedReport, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a due time of any task; or, as `rejected`, a report that was refused."""

    task_id: UUID
    type: str
    queue: str
    occurrence: datetime
    verdict: str
    reason: str | None = None
    through: datetime | None = None
    outcome: str | None = None
    """Of the last attempt, or of the report."""
    attempt: int | None = None
    token: int | None = None
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    recorded_at: datetime | None = None
    error: Any = None
    times: int = 1
    """How often the report came."""


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk action would be about."""

    count: int
    exact: bool
    """Counted, not estimated."""
    sample: tuple[Task, ...] = ()


class BulkJob(msgspec.Struct, frozen=True, kw_only=True):
    """An action on all tasks that a filter finds, and how far it has come."""

    id: UUID
    action: str
    filter: dict[str, Any]
    status: str
    """`running`, `stopping`, `stopped`, `done` or `failed`."""
    total: int
    """Tasks there were when it began; about so many if not `exact`."""
    exact: bool
    done: int = 0
    refused: int = 0
    """Tasks whose state did not allow it when their turn came."""
    rate: float
    """Tasks a second at most."""
    run_at: datetime | None = None
    created_by: str | None = None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    error: str | None = None
