"""Request shapes. Fields that a later version brings are refused as unknown."""

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
