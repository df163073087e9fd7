"""The tasks of a cluster in memory: what follows from each act is decided by the engine's own code."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import msgspec

from duly.actors.outcomes import decide, parse_report
from duly.nodes.api.definitions import name_conflict, redefined
from duly.nodes.api.problems import FieldError
from duly.storage.claims import Attempt, Settlement
from duly.storage.conveyor import Entry
from duly.storage.stream_facts import GIVEN_BACK
from duly.storage.submitting import NewTask
from duly.storage.tasks import RunRow, TaskRow
from duly.testing.clock import SetClock
from duly.wheel.durations import to_us

_KEYS_FOR = timedelta(days=1)
_OVER = frozenset({"completed", "failed", "cancelled"})


@dataclass
class Kept:
    """A task, where it is in its schedule, and its runs, the oldest first."""

    row: TaskRow
    place: int
    """Which submission it was."""
    done_until: datetime | None = None
    runs_done: int = 0
    runs: list[RunRow] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether nothing comes after it."""
        return self.row.status in _OVER

    def change(self, **fields: Any) -> None:
        """Set fields of the row."""
        self.row = self.row._replace(**fields)


class Store:
    """Knows every task there was."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock
        self._tasks: dict[UUID, Kept] = {}
        self._keys: dict[str, tuple[datetime, NewTask]] = {}
        self._places = count()

    def get(self, task_id: UUID) -> Kept | None:
        """The task, finished or not."""
        return self._tasks.get(task_id)

    def named(self, name: str) -> Kept | None:
        """The unfinished task with that name."""
        found = (one for one in self._tasks.values() if one.row.name == name and not one.is_over)
        return next(found, None)

    def newest_first(self) -> Iterator[Kept]:
        """Every task."""
        return reversed(self._tasks.values())

    def known(self, new: NewTask) -> Kept | FieldError | None:
        """The task that this submission has made already, or why it is refused; else None."""
        if new.key is not None and new.key in self._keys:
            until, first = self._keys[new.key]
            if until > self._clock.now:
                if first.fingerprint != new.fingerprint:
                    return FieldError("idempotency_key", "was used with another body")
                return self._tasks[first.id]
        named = None if new.name is None else self.named(new.name)
        if named is not None:
            fields = redefined(new, named.row)
            return FieldError("name", name_conflict(new.name, fields)) if fields else named
        if new.id in self._tasks:
            return FieldError("id", f"there is a task with the id {new.id}")
        return None

    def add(self, new: NewTask) -> Kept:
        """Keep a task that is not known."""
        self._tasks[new.id] = kept = Kept(_row(new), next(self._places))
        if new.key is not None:
            self._keys[new.key] = (self._clock.now + _KEYS_FOR, new)
        return kept

    def due(self, until: datetime) -> list[Kept]:
        """What waits until then, or runs; the best priority first, then the earliest."""
        found = [
            one
            for one in self._tasks.values()
            if one.row.next_run_at is not None and one.row.next_run_at <= until
        ]
        return sorted(found, key=_turn)

    def claim(self, kept: Kept) -> Entry | None:
        """Begin an attempt of a task that is due; None if as many run with its key as may."""
        row = kept.row
        if row.concurrency_key is not None:
            running = (o.row for o in self._tasks.values() if o.row.status == "running")
            same = sum(one.concurrency_key == row.concurrency_key for one in running)
            if same >= (row.concurrency_limit or 1):
                return None
        kept.change(status="running", version=row.version + 1, updated_at=self._clock.now)
        return Entry(
            queue=row.queue,
            entry_id=f"{kept.place}-{row.version + 1}".encode(),
            id=str(row.id),
            token=row.version + 1,
            type=row.type,
            payload=row.payload.encode(),
            due_us=to_us(row.occurrence),
            attempt=row.retry_count + 1,
            timeout_s=row.timeout,
            confirm=False,
        )

    def is_held(self, entry: Entry) -> bool:
        """Whether this attempt still counts."""
        kept = self._tasks[UUID(entry.id)]
        return kept.row.status == "running" and kept.row.version == entry.token

    def report(self, words: list[str]) -> None:
        """Record what a worker says of an attempt; a stale report is dropped."""
        encoded = [word.encode() for word in words]
        now = self._clock.now
        ended = parse_report(dict(zip(encoded[::2], encoded[1::2], strict=True)), now)
        kept = self._tasks[ended.id]
        row = kept.row
        if row.status != "running" or row.version != ended.token:
            return
        attempt = Attempt(
            row.id, row.version, row.retry_count, row.max_retries, row.backoff, row.on_lost,
            row.occurrence, row.created_at, row.schedule, row.overrun, row.misfire_grace,
            kept.done_until, kept.runs_done, row.type, row.next_run_at,
        )  # fmt: skip
        self._settle(kept, decide(ended, attempt, now))

    def cancel(self, kept: Kept) -> None:
        """Pending or running becomes cancelled."""
        row, now = kept.row, self._clock.now
        if row.status == "running":
            run = RunRow(
                row.id, row.version, row.occurrence, row.retry_count + 1, "cancelled", row.worker,
                row.started_at, now, now, None, None,
            )  # fmt: skip
            kept.runs.append(run)
        kept.change(
            status="cancelled", version=row.version + 1, next_run_at=None, updated_at=now,
            finished_at=now,
        )  # fmt: skip

    def retry(self, kept: Kept) -> None:
        """A failed task is due now, with all of its retries."""
        now = self._clock.now
        kept.change(
            status="pending", version=kept.row.version + 1, next_run_at=now, retry_count=0,
            updated_at=now, started_at=None, finished_at=None, worker=None, result=None,
        )  # fmt: skip

    def _settle(self, kept: Kept, settlement: Settlement) -> None:
        ended, place, now = settlement.ended, settlement.place, self._clock.now
        row = kept.row
        if ended.outcome != "snoozed":
            run = RunRow(
                row.id, row.version, row.occurrence, row.retry_count + 1, ended.outcome,
                ended.worker, ended.started_at, ended.finished_at, now, ended.error, ended.result,
            )  # fmt: skip
            kept.runs.append(run)
        again_at, following = settlement.again_at, None
        if place is not None:
            again_at, following = place.next_run_at, place.occurrence
            kept.done_until = place.done_until or kept.done_until
            for occurrence, error in place.skipped:
                skipped = RunRow(
                    row.id, row.version, occurrence, 1, "skipped", None, None, None, now, error,
                    None,
                )  # fmt: skip
                kept.runs.append(skipped)
        kept.runs_done += settlement.ran
        kept.change(updated_at=now, next_run_at=again_at)
        if again_at is None:
            kept.change(
                status=settlement.status, started_at=ended.started_at, finished_at=now,
                worker=ended.worker, result=ended.result, error=ended.error,
            )  # fmt: skip
            return
        kept.change(
            status="pending",
            retry_count=0 if following is not None else row.retry_count + settlement.counts,
            occurrence=following or row.occurrence,
            error=None if ended.outcome == "completed" else ended.error or _kept(row.error),
        )


def _kept(error: str | None) -> str | None:
    """Why it was given back only counts until the next end of an attempt."""
    said = None if error is None else msgspec.json.decode(error)
    return None if isinstance(said, dict) and said.get("type") == GIVEN_BACK else error


def _turn(kept: Kept) -> tuple[int, datetime, int]:
    row = kept.row
    assert row.next_run_at is not None
    return -row.priority, row.next_run_at, kept.place


def _row(new: NewTask) -> TaskRow:
    return TaskRow(
        id=new.id, type=new.type, queue=new.queue, payload=new.payload, status="pending", paused=False,
        next_run_at=new.due, occurrence=new.occurrence, slot=0, owner=None, version=0, retry_count=0,
        max_retries=new.max_retries, backoff=new.backoff, timeout=new.timeout, schedule=new.schedule,
        overrun=new.overrun, misfire_grace=new.misfire_grace, on_lost=new.on_lost,
        priority=new.priority, idempotency_key=new.key, tags=new.tags,
        concurrency_key=new.concurrency_key, concurrency_limit=new.concurrency_limit,
        fairness_key=new.fairness_key, region=new.region, name=new.name, created_at=new.created_at,
        updated_at=new.created_at, started_at=None, finished_at=None, worker=None, result=None, error=None,
    )  # fmt: skip
