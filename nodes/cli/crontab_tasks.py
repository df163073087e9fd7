"""From the jobs of crontabs to the tasks that do the same.

A task's id is computed from what it is: type, queue, schedule and payload. So the same line makes
the same task, however often, from where, and by how many at once it is imported; the second is
refused as known. A line that stands twice in one file is two tasks, as it is two jobs for cron.
"""

import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

import msgspec

from duly.nodes.crontab import Crontab, Job, Remark
from duly.wheel import zones
from duly.wheel.preview import Preview, preview
from duly.wheel.schedule import parse
from duly.wheel.schedule_fields import Schedule, ScheduleError

HANDLER: Final = "shell"
"""The last part of each task's type: the handler that is meant."""

_NAMESPACE: Final = uuid.UUID("6f1b5f0c-5d0f-4f43-9a2e-0d3b0c2c6a7e")


class Source(NamedTuple):
    """A crontab that was read."""

    name: str
    crontab: Crontab


@dataclass(frozen=True)
class Target:
    """What all tasks of an import have in common."""

    prefix: str
    """Before the type `shell`."""
    queue: str | None
    zone: str
    """Zone of the times without a `CRON_TZ`."""
    options: dict[str, Any]
    """Further options of the submissions; they are no part of a task's identity."""

    @property
    def type(self) -> str:
        """The type of the tasks: a dot is put between two words."""
        joint = "." if self.prefix[-1:].isalnum() else ""
        return f"{self.prefix}{joint}{HANDLER}"


@dataclass(frozen=True)
class Planned:
    """One job and its task."""

    file: str
    job: Job
    task: dict[str, Any]
    """The submission, with its id."""
    schedule: Schedule
    """Checked."""

    @property
    def id(self) -> str:
        """The task's id."""
        return str(self.task["id"])

    @property
    def place(self) -> str:
        """Where it comes from."""
        return f"{self.file}:{self.job.line}"

    def preview(self, after: datetime, count: int) -> Preview:
        """The next `count` times, in the wall time of its zone, and remarks on them."""
        found = preview(self.schedule, after, count)
        assert self.schedule.timezone is not None, "cron always has a zone"
        zone = zones.zone(self.schedule.timezone)
        return found._replace(
            fire_times=[
                at.astimezone(timezone(timedelta(seconds=zone.offset(int(at.timestamp())))))
                for at in found.fire_times
            ]
        )


class Plans(NamedTuple):
    """What an import comes to. Remarks go with the name of their file, in the order of the lines."""

    tasks: list[Planned]
    refused: list[tuple[str, Remark]]
    """The lines that cannot be taken."""
    notes: list[tuple[str, Remark]]


def plan(sources: list[Source], target: Target, now: datetime) -> Plans:
    """Tasks for all jobs."""
    planned: dict[str, Planned] = {}
    plans = Plans([], [], [])
    for name, crontab in sources:
        refused, notes = list(crontab.refused), list(crontab.notes)
        seen: Counter[str] = Counter()
        for job in crontab.jobs:
            try:
                one = _planned(name, job, target, seen, now)
            except ScheduleError as error:
                refused.append(Remark(job.line, _why(job, error)))
                continue
            first = planned.setdefault(one.id, one)
            if first is not one:
                notes.append(Remark(job.line, f"the same as {first.place}: one task for both"))
        for found, into in ((refused, plans.refused), (notes, plans.notes)):
            into += [(name, remark) for remark in sorted(found, key=lambda remark: remark.line)]
    return plans._replace(tasks=list(planned.values()))


def _planned(name: str, job: Job, target: Target, seen: Counter[str], now: datetime) -> Planned:
    schedule = {"cron": job.cron, "timezone": job.zone or target.zone}
    checked = parse(schedule, now)
    payload = {"command": job.command, "stdin": job.stdin, "env": job.env, "user": job.user}
    identity: dict[str, Any] = {
        "type": target.type,
        "queue": target.queue or "default",
        "schedule": schedule,
        "payload": {key: value for key, value in payload.items() if value},
    }
    text = msgspec.json.encode(identity, order="sorted").decode()
    seen[text] += 1
    if seen[text] > 1:
        text += f" {seen[text]}"
    more = {"tags": {"crontab": name[-500:]}, **target.options}
    return Planned(
        name, job, {"id": str(uuid.uuid5(_NAMESPACE, text)), **identity, **more}, checked
    )


def _why(job: Job, error: ScheduleError) -> str:
    if error.field == "timezone" and job.zone_line is not None:
        return f"CRON_TZ of line {job.zone_line}: {error.message}"
    return error.message
