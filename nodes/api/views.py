"""Rows become JSON; stored JSON passes through as it is."""

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from duly.nodes.api.replies import AlertView, AuditEntry, RunView, TaskView
from duly.nodes.api.wire import NULL
from duly.storage.alerts import Alert
from duly.storage.audit import Noted
from duly.storage.submitting import NewTask
from duly.storage.tasks import RunRow, TaskRow
from duly.wheel.backoff import Backoff

encoder = msgspec.json.Encoder()
_DEFAULT_BACKOFF = Raw(encoder.encode(Backoff()))


def task(row: TaskRow, *, payloads: bool = True) -> TaskView:
    """A stored task; without `payloads` its payload and result are hidden."""
    return TaskView(
        id=row.id,
        type=row.type,
        queue=row.queue,
        payload=raw(row.payload if payloads else None),
        status=row.status,  # type: ignore[arg-type]  # a CHECK of the table
        paused=row.paused,
        next_run_at=None if row.waits_for else row.next_run_at,
        slot=row.slot,
        owner=row.owner,
        version=row.version,
        retry_count=row.retry_count,
        max_retries=row.max_retries,
        backoff=_DEFAULT_BACKOFF if row.backoff is None else raw(row.backoff),
        timeout=row.timeout,
        schedule=raw(row.schedule),
        overrun=row.overrun,
        misfire_grace=row.misfire_grace,
        on_lost=row.on_lost,
        priority=row.priority,
        idempotency_key=row.idempotency_key,
        tags=raw(row.tags),
        concurrency_key=row.concurrency_key,
        concurrency_limit=row.concurrency_limit,
        fairness_key=row.fairness_key,
        region=row.region,
        name=row.name,
        created_at=row.created_at,
        updated_at=row.updated_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        worker=row.worker,
        result=raw(row.result if payloads else None),
        error=raw(row.error),
        on_success=_if_any(row.on_success, payloads),
        on_failure=_if_any(row.on_failure, payloads),
        parent=_if_any(row.parent, payloads),
        after=row.after or UNSET,
        waits_for=row.waits_for or UNSET,
        hidden=UNSET if payloads else _hidden(row),
    )


def _hidden(row: TaskRow) -> list[str]:
    linked = ("on_success", "on_failure", "parent")
    return ["payload", "result", *(name for name in linked if getattr(row, name) is not None)]


def submitted(new: NewTask, slot: int, created_at: datetime) -> TaskView:
    """A task that was just inserted, without reading it back."""
    return TaskView(
        id=new.id,
        type=new.type,
        queue=new.queue,
        payload=raw(new.payload),
        status="pending",
        paused=False,
        next_run_at=new.due,
        slot=slot,
        owner=None,
        version=0,
        retry_count=0,
        max_retries=new.max_retries,
        backoff=_DEFAULT_BACKOFF if new.backoff is None else raw(new.backoff),
        timeout=new.timeout,
        schedule=NULL if new.schedule is None else raw(new.schedule),
        overrun=new.overrun,
        misfire_grace=new.misfire_grace,
        on_lost=new.on_lost,
        priority=new.priority,
        idempotency_key=new.key,
        tags=raw(new.tags),
        concurrency_key=new.concurrency_key,
        concurrency_limit=new.concurrency_limit,
        fairness_key=new.fairness_key,
        region=new.region,
        name=new.name,
        created_at=created_at,
        updated_at=created_at,
        started_at=None,
        finished_at=None,
        worker=None,
        result=NULL,
        error=NULL,
        on_success=UNSET if new.on_success is None else raw(new.on_success),
        on_failure=UNSET if new.on_failure is None else raw(new.on_failure),
        after=UNSET if new.after is None else msgspec.json.decode(new.after, type=list[UUID]),
    )


def run(row: RunRow, *, payloads: bool = True) -> RunView:
    """An ended attempt; without `payloads` its result is hidden."""
    return RunView(
        task_id=row.task_id,
        token=row.token,
        occurrence=row.occurrence,
        attempt=row.attempt,
        outcome=row.outcome,  # type: ignore[arg-type]  # a CHECK of the table
        worker=row.worker,
        started_at=row.started_at,
        finished_at=row.finished_at,
        error=raw(row.error),
        result=raw(row.result if payloads else None),
        follow_up=row.follow_up or UNSET,
        hidden=UNSET if payloads else ["result"],
    )


def noted(row: Noted) -> AuditEntry:
    """A change in the audit log."""
    return AuditEntry(row.at, row.who, row.role, row.action, row.task_id, raw(row.details))


def alert(row: Alert) -> AlertView:
    """An alert over a watched schedule."""
    return AlertView(*row[:-1], raw(row.details))


def _if_any(text: str | None, payloads: bool = True) -> Raw | UnsetType:
    """Stored JSON as it is, null if it is hidden; absent if there is none."""
    return UNSET if text is None else raw(text if payloads else None)


def raw(text: str | None) -> Raw:
    """Stored JSON as it is; None as null."""
    return NULL if text is None else Raw(text.encode())
