"""`duly.Every` and `duly.Cron`: when a periodic task runs."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

from duly.nodes.client.values import Duration, When, duration, moment


@dataclass(frozen=True)
class Every:
    """Run at a fixed rate: `duly.Every(timedelta(hours=1))`, or seconds, at least 0.1.

    The grid begins at `start_at`; without it the first occurrence is one period after the
    submission.
    """

    every: Duration
    _: KW_ONLY
    start_at: When | None = None
    """The first occurrence, and the anchor of the grid."""
    end_at: When | None = None
    """No occurrence after this."""
    max_runs: int | None = None
    """The task ends after so many occurrences that ran."""
    jitter: Duration | None = None
    """Each occurrence runs up to so much later, by chance but the same on every node."""
    expect_within: Duration | None = None
    """The longest silence between occurrences that completed: past it an alert is raised."""
    pause_after: int | None = None
    """So many failed occurrences in a row pause the task, with an alert."""


@dataclass(frozen=True)
class Cron:
    """Run by a cron expression: `duly.Cron("0 3 * * *", "Europe/Berlin")`.

    Five fields, or six with the seconds first.
    """

    cron: str
    timezone: str = "UTC"
    _: KW_ONLY
    start_at: When | None = None
    """No occurrence before this."""
    end_at: When | None = None
    """No occurrence after this."""
    max_runs: int | None = None
    """The task ends after so many occurrences that ran."""
    jitter: Duration | None = None
    """Each occurrence runs up to so much later, by chance but the same on every node."""
    expect_within: Duration | None = None
    """The longest silence between occurrences that completed: past it an alert is raised."""
    pause_after: int | None = None
    """So many failed occurrences in a row pause the task, with an alert."""
    dst: Mapping[Literal["gap", "fold"], str] | None = None
    """What happens when clocks change: gap `shift` or `skip`; fold `first`, `second` or `both`."""


Schedule = Every | Cron | Mapping[str, Any]
"""A schedule, or the JSON object of one."""


def schedule_body(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as JSON; raises TypeError or ValueError that names the field."""
    if isinstance(schedule, Mapping):
        given = dict(schedule)
    elif isinstance(schedule, Every | Cron):
        given = {one.name: getattr(schedule, one.name) for one in fields(schedule)}
    else:
        kind = type(schedule).__name__
        raise TypeError(f"schedule is an Every, a Cron or a mapping, not {kind}")
    return {name: _plain(f"schedule.{name}", v) for name, v in given.items() if v is not None}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return moment(name, value)
    if isinstance(value, timedelta):
        return duration(name, value)
    return value
