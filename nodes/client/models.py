"""Tasks and runs as the API shows them. Numbers in payload and result are exact.

Fields that a newer node adds are ignored, fields that an older one lacks have their default.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class Task(msgspec.Struct, frozen=True, kw_only=True):
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
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    result: Any = None
    error: Any = None
    hidden: tuple[str, ...] = ()
    """Fields that are None because the token may not see them."""


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
    hidden: tuple[str, ...] = ()
    """Fields that are None because the token may not see them."""
