"""Whether two tasks are defined alike: what was asked for, not where each stands.

When a one-off task is due is no part of it: that moves with its retries.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from duly.nodes.api import views
from duly.nodes.api.replies import TaskView
from duly.nodes.api.submissions import comparable
from duly.storage.submitting import NewTask
from duly.storage.tasks import TaskRow

FIELDS: Final = (
    "type", "queue", "payload", "schedule", "overrun", "misfire_grace", "max_retries", "backoff", "timeout",
    "on_lost", "priority", "tags", "concurrency_key", "concurrency_limit", "fairness_key", "region",
    "on_success", "on_failure", "after",
)  # fmt: skip


def differences(one: TaskView, other: TaskView) -> list[str]:
    """The fields in which they are not defined alike, in the order of `FIELDS`."""
    return [field for field in FIELDS if _of(one, field) != _of(other, field)]


def redefined(new: NewTask, row: TaskRow) -> list[str]:
    """The fields in which a submission differs from a task that is stored."""
    return differences(views.submitted(new, row.slot, new.created_at), views.task(row))


def name_conflict(name: str | None, fields: Sequence[str]) -> str:
    """What is told of a submission under a name that another task has."""
    said = f", with another {' and '.join(fields)}" if fields else ""
    return f"there is an unfinished task with the name {name}{said}"


def _of(task: TaskView, field: str) -> object:
    value: object = getattr(task, field)
    return comparable(bytes(value)) if isinstance(value, msgspec.Raw) else value
