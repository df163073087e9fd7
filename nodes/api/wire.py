"""Request and reply shapes. Fields that a later version brings are refused as unknown."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

from duly.storage import waits
from duly.storage.keys import QUEUE_NAME
from duly.wheel.backoff import Backoff


def _shown(**more: object) -> Meta:
    """What the OpenAPI document says of a field that is checked by hand, for better messages."""
    return Meta(extra_json_schema=more)


_NO_NUL = _shown(pattern=r"^[^\u0000]*$")  # PostgreSQL cannot hold it

# `(?!\n)`: a plain `$` would also match before a final newline.
_NAME = r"^[A-Za-z0-9_.:/-]+$(?!\n)"
Type = Annotated[str, Meta(min_length=1, max_length=200, pattern=_NAME)]
_QUEUE_NAME = rf"^{QUEUE_NAME}$(?!\n)"
Queue = Annotated[str, Meta(min_length=1, max_length=100, pattern=_QUEUE_NAME)]
TaskName = Annotated[str, Meta(min_length=1, max_length=200, pattern=_QUEUE_NAME)]
Priority = Annotated[int, Meta(ge=0, le=9)]
MaxRetries = Annotated[int, Meta(ge=0, le=100_000)]
Duration = Annotated[float, _shown(minimum=0)] | Annotated[str, _shown(format="duration")]
Time = Annotated[str, _shown(format="date-time")]
TagName = Annotated[str, Meta(min_length=1, max_length=100), _NO_NUL]
TagValue = Annotated[str, Meta(max_length=500), _NO_NUL]
Tags = Annotated[dict[TagName, TagValue], Meta(max_length=16)]
KEY_MAX = 255
Key = Annotated[str, Meta(min_length=1, max_length=KEY_MAX), _NO_NUL]
Region = Annotated[str, Meta(min_length=1, max_length=50)]
ConcurrencyLimit = Annotated[int, Meta(ge=1, le=10_000)]
After = Annotated[list[UUID], Meta(max_length=waits.MOST)]
_DURATION = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "format": "duration"}]}
_TIME = {"type": "string", "format": "date-time"}
Schedule = Annotated[
    dict[str, Any],
    _shown(
        description="`every` or `cron`; checked by hand, for better messages",
        additionalProperties=False,
        properties={
            "every": _DURATION,
            "cron": {"type": "string"},
            "timezone": {"type": "string", "default": "UTC"},
            "start_at": _TIME,
            "end_at": _TIME,
            "max_runs": {"type": "integer", "minimum": 1},
            "jitter": _DURATION,
            "expect_within": _DURATION,
            "pause_after": {"type": "integer", "minimum": 1},
            "dst": {
                "type": "object",
                "properties": {
                    "gap": {"enum": ["shift", "skip"]},
                    "fold": {"enum": ["first", "second", "both"]},
                },
            },
        },
    ),
]
Overrun = Literal["skip", "queue"]
Token = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=200), _NO_NUL]
Millis = Annotated[float, _shown(minimum=0, exclusiveMaximum=4e13)]

NULL = Raw(b"null")


def _null() -> Raw:
    """A factory, since a schema cannot show a `Raw` as default."""
    return NULL


class FollowUp(msgspec.Struct, forbid_unknown_fields=True):
    """A task that follows another one: due at the end of that one, or `delay` later."""

    type: Type
    queue: Queue = "default"
    payload: Raw = msgspec.field(default_factory=_null)
    delay: Duration = 0.0
    max_retries: MaxRetries = 3
    backoff: Backoff | None = None
    timeout: Duration = 300.0
    misfire_grace: Duration | None = None
    on_lost: Literal["retry", "fail"] = "retry"
    priority: Priority = 5
    tags: Tags = {}
    concurrency_key: Key | None = None
    concurrency_limit: ConcurrencyLimit | None = None
    fairness_key: Key | None = None
    on_success: "FollowUp | None" = None
    on_failure: "FollowUp | None" = None


class TaskSubmission(msgspec.Struct, forbid_unknown_fields=True):
    """A task and when to run it: at `run_at`, after `delay`, now, or by a `schedule`."""

    type: Type
    id: UUID | None = None
    queue: Queue = "default"
    payload: Raw = msgspec.field(default_factory=_null)
    run_at: Time | None = None
    delay: Duration | None = None
    max_retries: MaxRetries = 3
    backoff: Backoff | None = None
    timeout: Duration = 300.0
    schedule: Schedule | None = None
    overrun: Overrun = "skip"
    misfire_grace: Duration | None = None
    on_lost: Literal["retry", "fail"] = "retry"
    priority: Priority = 5
    idempotency_key: Key | None = None
    tags: Tags = {}
    concurrency_key: Key | None = None
    concurrency_limit: ConcurrencyLimit | None = None
    fairness_key: Key | None = None
    region: Region | None = None
    name: TaskName | None = None
    on_success: FollowUp | None = None
    on_failure: FollowUp | None = None
    after: After | None = None


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to submit, all or none."""

    tasks: list[Raw]


class BatchAnswer(msgspec.Struct):
    """Ids in the order of the batch. `forwarded`: how many are on their way to other regions, if any."""

    ids: list[UUID]
    forwarded: dict[str, int] | msgspec.UnsetType = msgspec.UNSET


class TaskPatch(msgspec.Struct, forbid_unknown_fields=True):
    """What to change of a pending task; absent fields stay. Some may change while it runs."""

    run_at: Time | msgspec.UnsetType = msgspec.UNSET
    delay: Duration | msgspec.UnsetType = msgspec.UNSET
    payload: Raw | msgspec.UnsetType = msgspec.UNSET
    priority: Priority | msgspec.UnsetType = msgspec.UNSET
    max_retries: MaxRetries | msgspec.UnsetType = msgspec.UNSET
    backoff: Backoff | msgspec.UnsetType = msgspec.UNSET
    timeout: Duration | msgspec.UnsetType = msgspec.UNSET
    tags: Tags | msgspec.UnsetType = msgspec.UNSET
    schedule: Schedule | msgspec.UnsetType = msgspec.UNSET
    overrun: Overrun | msgspec.UnsetType = msgspec.UNSET
    misfire_grace: Duration | msgspec.UnsetType | None = msgspec.UNSET
    concurrency_key: Key | msgspec.UnsetType | None = msgspec.UNSET
    concurrency_limit: ConcurrencyLimit | msgspec.UnsetType = msgspec.UNSET
    fairness_key: Key | msgspec.UnsetType | None = msgspec.UNSET


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
    str, _shown(examples=["overrun", "misfire", "paused", "ended", "replaced", "expired"])
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


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """A worker asks for the one start of a token; the same `start_id` may ask again."""

    token: Token
    start_id: Name
    worker: Name


class ReportBody(msgspec.Struct, forbid_unknown_fields=True):
    """One outcome. `started` and `finished` in ms since the epoch, `delay` in seconds."""

    token: Token
    outcome: Literal["completed", "failed", "snoozed"]
    result: Raw = msgspec.field(default_factory=_null)
    error: Raw = msgspec.field(default_factory=_null)
    retry: bool | Literal[0, 1] = True
    delay: Annotated[float, Meta(ge=0)] | None = None
    worker: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    started: Millis | None = None
    finished: Millis | None = None


class ReportItem(ReportBody, forbid_unknown_fields=True, kw_only=True):
    """One outcome among many."""

    id: UUID


class ReportBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Up to 10,000 outcomes."""

    reports: Annotated[list[ReportItem], Meta(max_length=10_000)]


class ReportAnswer(msgspec.Struct):
    """For each report, in order, whether it was recorded; false = stale."""

    recorded: list[bool]
