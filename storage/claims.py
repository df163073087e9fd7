"""The fenced writes: every one compares a token, and nothing else begins or ends an attempt."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

from duly.storage.courses import Place, skipped_columns
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import DueRow, due_row
from duly.storage.tasks import Waiting

INLINE_BYTES = 48 * 1024
"""A claim answers at most about this much payload; larger payloads are read after it."""


class Claimed(NamedTuple):
    """A task that this node may publish. `payload` is JSON text."""

    id: UUID
    token: int
    type: str
    queue: str
    occurrence: datetime
    retry_count: int
    timeout: float
    on_lost: str
    payload: str
    traceparent: str | None = None
    parent: str | None = None
    """The task that this one follows, and what became of it, as JSON text."""


Held = Literal["full", "busy", "queue_full", "queue_busy"]
"""Why there is no room: enough run with its concurrency key, or in its queue; or another claim counts them."""


class Claim(NamedTuple):
    """What became of a claim: `owned` is false if a slot's epoch was not ours (then none)."""

    owned: bool
    tasks: list[Claimed]
    held: Mapping[UUID, Held] = MappingProxyType({})
    """Of a claim in turn: what stays pending because of its concurrency key."""


Outcome = Literal["completed", "failed", "lost", "timed_out", "snoozed"]


class Ended(NamedTuple):
    """An attempt that ended, as reported. `result` and `error` are JSON text."""

    id: UUID
    token: int
    outcome: Outcome
    worker: str | None
    started_at: datetime | None
    finished_at: datetime | None
    result: str | None = None
    error: str | None = None
    may_retry: bool = True
    delay_s: float | None = None


class Attempt(NamedTuple):
    """What deciding what follows needs to know. `backoff` and `schedule` are JSON text or None."""

    id: UUID
    token: int
    retry_count: int
    max_retries: int
    backoff: str | None
    on_lost: str
    occurrence: datetime
    created_at: datetime
    schedule: str | None = None
    overrun: str = "skip"
    misfire_grace: float | None = None
    done_until: datetime | None = None
    runs_done: int = 0
    type: str = ""
    next_run_at: datetime | None = None
    """When this attempt was due."""
    completion: str | None = None
    """If a user's transaction has completed it: `worker`, `finished_at` and `result`, as JSON."""
    follows_success: bool = False
    """Another task follows if it completes."""
    follows_failure: bool = False


class Settlement(NamedTuple):
    """The decision over an attempt.

    `again_at`: the same occurrence once more, at that instant; `counts`: that takes a retry. Else
    `place`: where a periodic task goes next. With neither, the task ends, as `status`. `ran`: the
    occurrence counts among those of the schedule that ran.
    """

    ended: Ended
    attempt: Attempt
    again_at: datetime | None = None
    counts: bool = False
    place: Place | None = None
    status: Literal["completed", "failed"] = "failed"
    ran: bool = False

    @property
    def is_followed(self) -> bool:
        """Whether another task follows what became of the occurrence."""
        attempt, outcome = self.attempt, self.ended.outcome
        if self.again_at is not None or outcome == "snoozed":
            return False
        return attempt.follows_success if outcome == "completed" else attempt.follows_failure


class Settled(NamedTuple):
    """A recorded decision; `due` is the task as it waits again, None if it ended for good."""

    id: UUID
    due: DueRow | None
    slot_owner: str | None
    freed_key: str | None = None
    """The concurrency key that its attempt held."""
    queue: str = ""
    ended: bool = True
    """False: no attempt of it ended; it waits because another one did."""


class Expired(NamedTuple):
    """Tasks that ended without an attempt, and those that wait because of that."""

    ids: list[UUID]
    waiting: list[Waiting]


DrawId = Callable[[], UUID]
"""Makes the id of a new task, which the store can hold."""


async def claim(
    db: Database,
    owner: str,
    entries: Sequence[DueRow],
    epochs: dict[int, int],
    now: datetime,
) -> Claim:
    """Claim these tasks at these versions, if this node still owns their slots."""
    rows = await db.fetch("claim", *_claim_columns(owner, entries, epochs, now))
    found = [tuple(row)[1:] for row in rows if row["id"] is not None]
    return Claim(rows[0]["owned"], await _with_payloads(db, found))


async def claim_in_turn(
    db: Database,
    owner: str,
    entries: Sequence[DueRow],
    epochs: dict[int, int],
    now: datetime,
    queue: str | None = None,
) -> Claim:
    """As `claim`, but only as many as their concurrency keys have room for, the first ones.

    With `queue`, in which they all are, no more than its `max_in_flight` allows. What finds no room is
    told in `held`, and stays pending. Never waits for another claim. `owned` is also true where there was
    room for none of them.
    """
    columns = _claim_columns(owner, entries, epochs, now)
    keys = [entry.concurrency_key for entry in entries]
    rows = await db.fetch("claim_in_turn", *columns, keys, queue)
    held: dict[UUID, Held] = {
        row["held_id"]: row["held"] for row in rows if row["held"] is not None
    }
    found = [tuple(row)[1:-2] for row in rows if row["id"] is not None]
    owned = all(row["owned"] for row in rows)
    return Claim(owned, await _with_payloads(db, found), held)


def _claim_columns(
    owner: str, entries: Sequence[DueRow], epochs: dict[int, int], now: datetime
) -> list[Any]:
    slots = sorted({entry.slot for entry in entries})
    return [
        [entry.id for entry in entries],
        [entry.version for entry in entries],
        owner,
        slots,
        [epochs[slot] for slot in slots],
        now,
        INLINE_BYTES // len(entries),
    ]


async def _with_payloads(db: Database, found: list[tuple[Any, ...]]) -> list[Claimed]:
    """What was claimed, with the payloads that did not come along: large ones, and of tasks that follow others."""
    large = [row[0] for row in found if row[8] is None]
    try:
        apart = await payloads(db, large) if large else {}
    except StoreUnavailableError as error:
        # The claim itself has committed: its caller has to read it back.
        raise StoreUnavailableError(str(error), in_doubt=True) from error
    # A large payload's task may have been cancelled in between: then there is nothing to publish.
    return [
        Claimed(*row)
        if row[8] is not None
        else Claimed(*row[:8], apart[row[0]][0], row[9], apart[row[0]][1])  # type: ignore[call-arg]
        for row in found
        if row[8] is not None or row[0] in apart
    ]


async def payloads(db: Database, ids: Sequence[UUID]) -> dict[UUID, tuple[str, str | None]]:
    """Payloads, and what the tasks that these follow have to say, as JSON text."""
    rows = await db.fetch("payloads", list(ids))
    return {row["id"]: (row["payload"], row["parent"]) for row in rows}


async def claimed_by(
    db: Database, owner: str, entries: Sequence[DueRow], now: datetime
) -> list[Claimed]:
    """After a claim in doubt, made `now`: what of it is ours."""
    ids, versions = [e.id for e in entries], [e.version for e in entries]
    rows = await db.fetch("claimed", ids, versions, owner, now)
    return [Claimed(*row) for row in rows]


async def key_holders(db: Database, task_id: UUID, limit: int = 100) -> list[UUID]:
    """The running tasks that hold the concurrency key of a task that is not finished, oldest first."""
    return [row["id"] for row in await db.fetch("key_holders", task_id, limit)]


async def in_flight(db: Database, queue: str) -> int:
    """How many tasks of a queue run; at a cost of all that run."""
    count: int = (await db.fetch("in_flight", queue))[0]["count"]
    return count


async def running(db: Database, pairs: Sequence[tuple[UUID, int]]) -> list[Claimed]:
    """Of these (id, token), those that still run: what to publish again."""
    rows = await db.fetch("running", [p[0] for p in pairs], [p[1] for p in pairs])
    return [Claimed(*row) for row in rows]


async def expire(
    db: Database, entries: Sequence[DueRow], now: datetime, draw_id: DrawId = uuid4
) -> Expired:
    """End one-off tasks that are later than their misfire grace, or waited for one that did not complete."""
    ids, versions = [e.id for e in entries], [e.version for e in entries]
    rows = await db.fetch("expire", ids, versions, now, [draw_id() for _ in entries])
    waiting = [Waiting(due, row["slot_owner"]) for row in rows if (due := due_row(row)) is not None]
    return Expired([row["id"] for row in rows if row["expired"]], waiting)


async def start(
    db: Database, task_id: UUID, token: int, start_id: str, worker: str, now: datetime
) -> bool:
    """Grant this token its one start; true again for the same `start_id`."""
    return bool(await db.fetch("start", task_id, token, start_id, worker, now))


class Completed(NamedTuple):
    """A recorded success: what it was of, and when it was due."""

    id: UUID
    token: int
    type: str
    next_run_at: datetime
    queue: str
    concurrency_key: str | None


async def complete(db: Database, reports: Sequence[Ended], now: datetime) -> list[Completed]:
    """Record successes of one-off tasks; answers those that were recorded."""
    rows = await db.fetch(
        "complete",
        [r.id for r in reports],
        [r.token for r in reports],
        [r.worker for r in reports],
        [r.started_at for r in reports],
        [r.finished_at for r in reports],
        [r.result for r in reports],
        now,
    )
    return [Completed(*row) for row in rows]


async def attempts(db: Database, pairs: Sequence[tuple[UUID, int]]) -> dict[UUID, Attempt]:
    """Those of (id, token) that still run, with what decides over a retry."""
    rows = await db.fetch("attempts", [p[0] for p in pairs], [p[1] for p in pairs])
    return {row["id"]: Attempt(*row) for row in rows}


async def settle(
    db: Database, decisions: Sequence[Settlement], now: datetime, draw_id: DrawId = uuid4
) -> list[Settled]:
    """Record every other end of an attempt, with what follows, in one statement.

    Not of a task whose schedule is not any more what was decided on, or for which somebody begins to wait just now.
    """
    places = [d.place or Place(None, d.again_at) for d in decisions]
    rows = await db.fetch(
        "settle",
        [d.ended.id for d in decisions],
        [d.ended.token for d in decisions],
        [None if d.ended.outcome == "snoozed" else d.ended.outcome for d in decisions],
        [place.next_run_at for place in places],
        [d.counts for d in decisions],
        [d.ended.worker for d in decisions],
        [d.ended.started_at for d in decisions],
        [d.ended.finished_at for d in decisions],
        [d.ended.error for d in decisions],
        [d.ended.result for d in decisions],
        [d.status for d in decisions],
        [d.attempt.occurrence for d in decisions],
        [d.attempt.retry_count + 1 for d in decisions],
        [d.attempt.schedule for d in decisions],
        [d.attempt.overrun for d in decisions],
        [d.ran for d in decisions],
        [place.occurrence for place in places],
        [place.following for place in places],
        [place.done_until for place in places],
        [place.skip_until for place in places],
        [place.skip_reason for place in places],
        [place.zone_data for place in places],
        [d.attempt.done_until for d in decisions],
        [draw_id() if d.is_followed else None for d in decisions],
        *skipped_columns([(d.ended.id, p) for d, p in zip(decisions, places, strict=True)]),
        now,
    )
    return [
        Settled(
            row["id"],
            due_row(row),
            row["slot_owner"],
            row["freed_key"],
            row["of_queue"],
            row["ended"],
        )
        for row in rows
    ]
