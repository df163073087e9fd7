"""Who owns the slots, and what an owner reads of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from duly.storage.database import Database

SLOTS = 256
"""Fixed when a store is made: the first byte of the SHA-256 of the id."""

PRIORITY = 5
"""Of a task that says nothing else. Where most tasks have it, and no index (`due_best`)."""

_LOOKED_AT = 8
_PER_SLOT = 16  # rows more than twice a slot's share: its tasks are as many as those of others
_UNFAIR_LOOKED_AT = 1_000


class Cursor(NamedTuple):
    """How far a slot has been read, in order of (next_run_at, id)."""

    at: datetime
    id: UUID


BEGINNING = Cursor(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
"""Of a slot of which nothing has been read. Of this very one nothing is sent: so many cost a sweep nothing."""


class DueRow(NamedTuple):
    """What the wheel keeps of a pending task."""

    id: UUID
    slot: int
    next_run_at: datetime
    version: int
    priority: int
    queue: str
    concurrency_key: str | None = None
    fairness_key: str | None = None
    ticked_us: int = 0
    """When it was passed on as due, on the cluster's clock; 0 = not yet. The last field: see `ticked`."""


def ticked(rows: Iterable[DueRow], at_us: int) -> list[DueRow]:
    """The same rows, as they are passed on as due."""
    return [DueRow._make((*row[:-1], at_us)) for row in rows]


def due_row(row: Any) -> DueRow | None:
    """The row of a statement that tells of a pending task; None if it has no `next_run_at`."""
    at = row["next_run_at"]
    if at is None:
        return None
    return DueRow(
        row["id"], row["slot"], at, row["version"], row["priority"], row["queue"],
        row["concurrency_key"], row["fairness_key"],
    )  # fmt: skip


class DuePage(NamedTuple):
    """Due rows of some slots, each slot's in order; and how far those were read that may have more."""

    rows: list[DueRow]
    more: dict[int, Cursor]


class Best(NamedTuple):
    """The first rows of a queue in its order; `complete`: there are no more."""

    rows: list[DueRow]
    complete: bool


class RunningRow(NamedTuple):
    """A claimed task, as the reaper sees it. `timeout` in seconds."""

    id: UUID
    version: int
    queue: str
    claimed_at: datetime
    timeout: float
    owner: str
    completion: str | None = None
    """If a user's transaction has completed it: JSON; see `claims.Attempt`."""


class Taken(NamedTuple):
    """What became of a take-over: slot -> epoch of those taken; the others by why not.

    `busy`: slot -> old owner, where a statement of that owner holds the row just now.
    """

    epochs: dict[int, int]
    busy: dict[int, str | None]


class SlotState(NamedTuple):
    """Who owns a slot by what PostgreSQL knows; None: nobody since it was let go."""

    owner: str | None
    epoch: int


async def take(
    db: Database, slots: Sequence[int], owner: str, now: datetime, unless_others: Sequence[int] = ()
) -> Taken:
    """Raise the epochs of `slots` for their new owner.

    Of `unless_others` (some of `slots`) only where the last owner is `owner`, or nobody.
    """
    rows = await db.fetch("take_slots", list(slots), owner, now, list(unless_others))
    guarded = set(unless_others)
    epochs = {row["slot"]: row["epoch"] for row in rows if row["epoch"] is not None}
    busy = {
        row["slot"]: row["owner"]
        for row in rows
        if row["epoch"] is None and (row["slot"] not in guarded or row["owner"] in (None, owner))
    }
    return Taken(epochs, busy)


async def let_go(db: Database, slots: Sequence[int], owner: str, now: datetime) -> None:
    """Own these slots no longer: whoever gets their leases next need not ask who else has them."""
    await db.fetch("let_go_slots", list(slots), owner, now)


async def states(db: Database, slots: Sequence[int]) -> dict[int, SlotState]:
    """Who owns these slots."""
    rows = await db.fetch("slot_states", list(slots))
    return {row["slot"]: SlotState(row["owner"], row["epoch"]) for row in rows}


class Holding(NamedTuple):
    """A slot as PostgreSQL knows it; `free_since` is set when its owner lets it go."""

    slot: int
    owner: str | None
    epoch: int
    taken_at: datetime | None
    free_since: datetime | None


async def slot_map(db: Database) -> list[Holding]:
    """Every slot, in order."""
    return [Holding(*row) for row in await db.fetch("slot_map")]


def session_name(owner: str) -> str:
    """What the sessions of a node are called in PostgreSQL (which keeps 63 bytes of a name)."""
    return f"duly {owner[-58:]}"


async def end_sessions(db: Database, owners: Sequence[str], held_s: float) -> int:
    """End those sessions of these nodes that have locked slots for so long; answers how many."""
    return len(await db.fetch("end_sessions", [session_name(one) for one in owners], held_s))


async def due(
    db: Database,
    cursors: dict[int, Cursor],
    before: datetime,
    per_slot: int,
    without_queues: Sequence[str] = (),
    without_keys: Sequence[tuple[str, str]] = (),
    without_until: datetime | None = None,
) -> DuePage:
    """Pending tasks due before `before`, the first `per_slot` after each slot's cursor.

    Of `without_queues`, and of `without_keys` (queue, concurrency key), only those due after
    `without_until` (default: none). To leave these out, `_LOOKED_AT` times as many are looked at, at most.
    """
    where = (*after(cursors), before, per_slot)
    if not without_queues and not without_keys:
        return _page([DueRow(*row) for row in await db.fetch("due", *where)], per_slot)
    rows = await db.fetch(
        "due_but",
        *where,
        list(without_queues),
        before if without_until is None else without_until,
        [queue for queue, _ in without_keys],
        [key for _, key in without_keys],
        per_slot * _LOOKED_AT,
    )
    page = _page([DueRow(*tuple(row)[:-2]) for row in rows if row["wanted"]], per_slot)
    ends = {r["slot"]: Cursor(r["next_run_at"], r["id"]) for r in rows if r["more"]}
    return page._replace(more=page.more | ends)


def after(cursors: dict[int, Cursor]) -> tuple[list[int], list[datetime], list[UUID]]:
    """Slots and cursors as the statements take them: those without a cursor are the last."""
    begun = {slot: cursor for slot, cursor in cursors.items() if cursor is not BEGINNING}
    if len(begun) < len(cursors):
        cursors = begun | cursors
    return list(cursors), [c.at for c in begun.values()], [c.id for c in begun.values()]


def _page(rows: list[DueRow], per_slot: int) -> DuePage:
    counts: dict[int, int] = {}
    last: dict[int, Cursor] = {}
    for row in rows:
        counts[row.slot] = counts.get(row.slot, 0) + 1
        last[row.slot] = Cursor(row.next_run_at, row.id)
    return DuePage(rows, {slot: last[slot] for slot, n in counts.items() if n == per_slot})


async def due_best(
    db: Database,
    slots: Sequence[int],
    queue: str,
    now: datetime,
    limit: int,
    without_keys: Sequence[str] | None = (),
    since: datetime | None = None,
    *,
    unfair: bool = False,
) -> Best:
    """Tasks of one queue that are due by `now`, at most `limit`, by priority and due time.

    Of those of the usual priority none that was due before `since` (None: all). None of the concurrency keys
    `without_keys` (None: none of any); with `unfair` only those without a fairness key, as far as they are found among
    the first `_UNFAIR_LOOKED_AT` of each slot that are due.
    """
    per_slot = min(limit, 2 * limit // max(1, len(slots)) + _PER_SLOT)
    looked_at = _UNFAIR_LOOKED_AT if unfair else None
    keys = None if without_keys is None else list(without_keys)
    args = (list(slots), queue, now, limit, keys, unfair, per_slot, looked_at, since)
    rows = [DueRow(*row) for row in await db.fetch("due_best", *args)]
    kept = _certain(rows, per_slot)
    return Best(kept, complete=len(kept) < limit and len(kept) == len(rows))


def _certain(rows: list[DueRow], per_slot: int) -> list[DueRow]:
    """Those rows that no row goes before of which no more were read than `per_slot` of a slot."""
    usual = [row for row in rows if row.priority == PRIORITY]
    counts = Counter(row.slot for row in usual)
    last = {row.slot: row.next_run_at for row in usual if counts[row.slot] >= per_slot}
    if not last:
        return rows
    end = (-PRIORITY, min(last.values()))
    return [row for row in rows if (-row.priority, row.next_run_at) <= end]


async def fair_keys(db: Database, queue: str, after: str, limit: int) -> list[str]:
    """Fairness keys of which tasks wait in a queue, in their own order, after one of them."""
    return [row["fairness_key"] for row in await db.fetch("fair_keys", queue, after, limit)]


async def due_fair(
    db: Database,
    slots: Sequence[int],
    queue: str,
    keys: Sequence[str],
    now: datetime,
    per_key: int,
    without_keys: Sequence[str] = (),
) -> list[DueRow]:
    """As `due_best`, the best of each of these fairness keys."""
    args = (list(slots), queue, list(keys), now, per_key, list(without_keys))
    return [DueRow(*row) for row in await db.fetch("due_fair", *args)]


async def due_of_key(
    db: Database, slots: Sequence[int], queue: str, key: str, now: datetime, limit: int
) -> list[DueRow]:
    """The same of one concurrency key."""
    rows = await db.fetch("due_of_key", list(slots), queue, key, now, limit)
    return [DueRow(*row) for row in rows]


async def running_since(
    db: Database,
    slots: Sequence[int],
    claimed_before: datetime,
    limit: int,
    after: RunningRow | None = None,
) -> list[RunningRow]:
    """Running tasks of `slots` claimed before an instant, the oldest first, from `after` on."""
    place = (after.claimed_at, after.id) if after is not None else (None, None)
    rows = await db.fetch("running_since", list(slots), claimed_before, limit, *place)
    return [RunningRow(*row) for row in rows]


async def running_queues(db: Database, slots: Sequence[int]) -> list[str]:
    """Queues that have running tasks in these slots."""
    return [row["queue"] for row in await db.fetch("running_queues", list(slots))]


async def tokens(db: Database, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Of these ids, those that run, with their token."""
    rows = await db.fetch("inflight_ids", list(ids))
    return {UUID(bytes=row["id"].bytes): row["version"] for row in rows}
