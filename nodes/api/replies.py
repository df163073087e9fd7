"""Reply shapes: tasks and what became of them, changes, alerts, and the answers to what was sent."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw


class BatchAnswer(msgspec.Struct):
    """Ids in the order of the batch. `forwarded`: how many are on their way to other regions, if any."""

    ids: list[UUID]
    forwarded: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class ForwardingView(msgspec.Struct):
    """A task that was submitted here for another region, and is not known to be there.

    `sent`: it may be there. `problem`: why the region refused it. `error`: why it cannot be handed to it now.
    """

    region: str
    state: Literal["waiting", "delivered", "refused", "cancelled"]
    since: datetime
    sent: bool
    problem: Raw
    error: str | None


class TaskView(msgspec.Struct):
    """A task as the API shows it. Durations in seconds."""

    id: UUID
    type: str
    queue: str
    payload: Raw
    status: Literal["pending", "running", "completed", "failed", "cancelled"]
    paused: bool
    next_run_at: datetime | None
    slot: int
    owner: str | None
    version: int
    retry_count: int
    max_retries: int
    backoff: Raw
    timeout: float
    schedule: Raw
    overrun: str
    misfire_grace: float | None
    on_lost: str
    priority: int
    idempotency_key: str | None
    tags: Raw
    concurrency_key: str | None
    concurrency_limit: int | None
    fairness_key: str | None
    region: str | None
    name: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    result: Raw
    error: Raw
    on_success: Raw | msgspec.UnsetType = msgspec.UNSET
    """These five are absent where there is nothing of it."""
    on_failure: Raw | msgspec.UnsetType = msgspec.UNSET
    parent: Raw | msgspec.UnsetType = msgspec.UNSET
    after: list[UUID] | msgspec.UnsetType = msgspec.UNSET
    waits_for: list[UUID] | msgspec.UnsetType = msgspec.UNSET
    forwarding: ForwardingView | msgspec.UnsetType = msgspec.UNSET
    """Absent on tasks that are in this region."""
    hidden: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Fields that are shown as null because the token may not see them; absent if there are none."""


class RunView(msgspec.Struct):
    """One ended attempt."""

    task_id: UUID
    token: int
    occurrence: datetime
    attempt: int
    outcome: Literal["completed", "failed", "lost", "timed_out", "cancelled", "skipped"]
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    error: Raw
    result: Raw
    follow_up: UUID | msgspec.UnsetType = msgspec.UNSET
    """The task that followed this outcome; absent if none did."""
    hidden: list[str] | msgspec.UnsetType = msgspec.UNSET


class TaskPage(msgspec.Struct):
    """A page of tasks, newest first."""

    items: list[TaskView]
    next_cursor: str | None


class RunPage(msgspec.Struct):
    """A page of runs, newest first."""

    items: list[RunView]
    next_cursor: str | None


Verdict = Literal["completed", "failed", "cancelled", "skipped"]
Reason = Annotated[
    str,
    Meta(
        extra_json_schema={
            "examples": ["overrun", "misfire", "paused", "ended", "replaced", "expired"]
        }
    ),
]


class RejectedView(msgspec.Struct):
    """A report that was refused. `times`: how often it came."""

    token: int
    outcome: str
    worker: str | None
    received_at: datetime
    reason: str
    error: Raw
    times: int


class LedgerItem(msgspec.Struct):
    """What became of one occurrence; `verdict` null: it is still open.

    `attempts`, `rejected`: the newest ones. `through`: it stands for every later occurrence up to then.
    """

    occurrence: datetime
    verdict: Verdict | None
    reason: Reason | None
    through: datetime | None
    recorded_at: datetime | None
    attempts: list[RunView]
    rejected: list[RejectedView]


class LedgerPage(msgspec.Struct):
    """A page of occurrences of a task, newest first."""

    items: list[LedgerItem]
    next_cursor: str | None


class EntryView(msgspec.Struct):
    """A verdict, or (as `rejected`) a report that was refused.

    `outcome`: of the last attempt, or of the report. `through`: as in the ledger of a task.
    """

    task_id: UUID
    type: str
    queue: str
    occurrence: datetime
    verdict: Verdict | Literal["rejected"]
    reason: Reason | None
    through: datetime | None
    outcome: str
    attempt: int | None
    token: int
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    recorded_at: datetime
    error: Raw
    times: int


class EntryPage(msgspec.Struct):
    """A page of verdicts, newest first; it may have few items, or none, and yet a next page."""

    items: list[EntryView]
    next_cursor: str | None


class AuditEntry(msgspec.Struct):
    """A change that somebody made. `who`: the name of the token, null on a node without tokens."""

    at: datetime
    who: str | None
    role: str
    action: str
    task_id: UUID | None
    """Null if the change was not one of a task; then `details` says of what."""
    details: Raw


class AuditPage(msgspec.Struct):
    """A page of changes, newest first."""

    items: list[AuditEntry]
    next_cursor: str | None


class AlertView(msgspec.Struct):
    """A watched schedule that is silent for too long, or was paused after too many failures."""

    id: int
    kind: Literal["silent", "auto_paused"]
    task_id: UUID
    type: str
    queue: str
    since: datetime
    """Of a silent one, when it last completed (or began to be watched)."""
    raised_at: datetime
    cleared_at: datetime | None
    details: Raw


class AlertPage(msgspec.Struct):
    """A page of alerts, newest first."""

    items: list[AlertView]
    next_cursor: str | None


class ReportAnswer(msgspec.Struct):
    """For each report, in order, whether it was recorded; false = stale."""

    recorded: list[bool]
