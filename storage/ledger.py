"""The ledger: what became of each occurrence, with its attempts, and which reports were refused."""

from collections.abc import Sequence
from datetime import UTC, datetime, time
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.database import Database
from duly.storage.tasks import RunRow

VERDICTS = ("completed", "failed", "cancelled", "skipped")
"""One of these is recorded of each occurrence, once."""

REASONS = ("overrun", "misfire", "paused", "ended", "replaced", "expired")
"""Why an occurrence was skipped."""


_TOKEN_MAX = (1 << 63) - 1


class Entry(NamedTuple):
    """A verdict, or (as `rejected`) a report that was refused. `error` is JSON text.

    `outcome`: of the attempt that was the last, or of the report. `times`: how often the report came.
    """

    task_id: UUID
    type: str
    queue: str
    occurrence: datetime
    verdict: str
    outcome: str
    token: int
    attempt: int | None
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    recorded_at: datetime
    error: str | None
    times: int


class Place(NamedTuple):
    """How far a list has been read, newest first."""

    recorded_at: datetime
    task_id: UUID
    token: int


class Filter(NamedTuple):
    """Which entries are asked for; None = any. `reason` is of those that were skipped."""

    since: datetime
    type: str | None = None
    queue: str | None = None
    verdict: str | None = None
    reason: str | None = None


class Verdict(NamedTuple):
    """What became of one occurrence of a task, with the run that says so."""

    run: RunRow
    verdict: str


class Rejected(NamedTuple):
    """A report that was refused; `times`: how often it came. `error` is JSON text."""

    token: int
    outcome: str
    worker: str | None
    received_at: datetime
    error: str | None
    occurrence: datetime
    times: int


class Account(NamedTuple):
    """Occurrences of one task, as they were at one instant, newest first.

    `opened`: the one that has no verdict yet, if it is asked for and there is one. `is_more`: there are
    older ones than those of `ended`. `attempts`: of these occurrences, the newest 100 of each. `rejected`:
    reports of attempts at them that were refused, the newest 1,000.
    """

    opened: datetime | None
    ended: list[Verdict]
    is_more: bool
    attempts: list[RunRow]
    rejected: list[Rejected]


MORE = "more"
"""Outcome of what stands for further refused reports of a task, which were only counted."""


class Stale(NamedTuple):
    """A refused report to be kept. `worker` is empty if it did not say; `error` is JSON text."""

    id: UUID
    token: int
    outcome: str
    worker: str
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    times: int = 1


async def entries(
    db: Database, where: Filter, after: Place, limit: int
) -> tuple[list[Entry], Place | None]:
    """Newest first, after `after`: those found among the next 10,000, and where to go on, if anywhere."""
    name, more = "verdicts", [where.verdict]
    if where.verdict == "rejected":
        name, more = "rejected", []
    elif where.reason is not None or where.verdict not in (None, "completed"):
        name, more = "verdicts_not_completed", [where.verdict or "skipped", where.reason]
    rows = await db.fetch(name, where.since, *after, where.type, where.queue, *more, limit + 1)
    found = [Entry(*list(row)[:-2]) for row in rows if row["fits"]]
    if len(found) > limit:
        found = found[:limit]
        return found, _place(found[-1])
    if rows and rows[-1]["is_last"]:
        last = rows[-1]
        return found, Place(last["recorded_at"], last["task_id"], last["token"])
    return found, None


def _place(entry: Entry) -> Place:
    return Place(entry.recorded_at, entry.task_id, entry.token)


async def of_task(
    db: Database, task_id: UUID, after: tuple[int, datetime] | None, limit: int
) -> Account | None:
    """A page of the account of a task, after a (token, recorded_at); None: there is no such task."""

    async def work(connection: Any) -> Account | None:
        return await _account(connection, task_id, after, limit)

    # An occurrence that ends meanwhile is open or has its verdict, never both.
    return await db.snapshot(work, "task_verdicts")


async def _account(
    connection: Any, task_id: UUID, after: tuple[int, datetime] | None, limit: int
) -> Account | None:
    async def fetch(name: str, *args: Any) -> list[Any]:
        rows: list[Any] = await connection.fetch(Database.sql(name), task_id, *args)
        return rows

    task = await connection.fetchrow(Database.sql("get"), [task_id])
    if task is None:
        return None
    token, recorded_at = after or (None, None)
    rows = await fetch("task_verdicts", token, recorded_at, limit + 1)
    ended = [Verdict(RunRow(*list(row)[:-1]), row["verdict"]) for row in rows[:limit]]
    is_open = after is None and task["finished_at"] is None
    opened = [task["occurrence"]] if is_open else []
    ran = [one.run for one in ended if one.run.outcome != "skipped"]
    at = opened + [run.occurrence for run in ran]
    tokens = [_TOKEN_MAX] * len(opened) + [run.token for run in ran]
    attempts = await fetch("occurrence_attempts", at, tokens) if at else []
    every = opened + [one.run.occurrence for one in ended]
    rejected = await fetch("occurrence_rejected", every) if every else []
    return Account(
        opened[0] if is_open else None, ended, len(rows) > limit,
        [RunRow(*row) for row in attempts], [Rejected(*row) for row in rejected],
    )  # fmt: skip


async def reject(db: Database, stale: Sequence[Stale], now: datetime) -> None:
    """Keep refused reports, each (id, token, outcome, worker) once in `stale`."""
    columns = [list(column) for column in zip(*stale, strict=True)]
    day = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    await db.fetch("reject", *columns, day, now)
