"""Tasks that were submitted here for other regions: the outbox, and where its tasks went.

A task is kept before it is handed on. Who hands on has the region's turn, which one node has at a time, and
does so in the order of submission; what it sends is marked before it is sent. It may be sent twice: its id and
the instant of its submission tell the other region that it is the same.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from duly.storage import audit, certainty
from duly.storage.audit import Note
from duly.storage.database import Database

State = Literal["waiting", "delivered", "refused", "cancelled"]

DEPTH_MAX = 100_000
"""As far as the outbox is counted."""

_TRIES = 3


class Parcel(NamedTuple):
    """A submission for another region, as it came (`body`)."""

    id: UUID
    region: str
    accepted_at: datetime
    body: bytes
    key: str | None
    fingerprint: bytes | None
    traceparent: str | None
    who: str | None


class Kept(NamedTuple):
    """A submission for another region as it is kept here. `problem` is JSON text."""

    id: UUID
    seq: int
    region: str
    state: State
    sent: bool
    """It may have arrived."""
    accepted_at: datetime
    updated_at: datetime
    body: bytes | None
    key: str | None
    fingerprint: bytes | None
    traceparent: str | None
    who: str | None
    task_id: UUID | None
    problem: str | None
    slot: int
    failing_since: datetime | None = None
    """Since when its region cannot be handed tasks; None: it can, or nobody knows."""
    error: str | None = None


class Outcome(NamedTuple):
    """What became of a submission in its region."""

    id: UUID
    state: State
    task_id: UUID | None
    problem: str | None
    keep_until: datetime


class Head(NamedTuple):
    """A region for which tasks wait: since when the first, and what keeps it from being handed on."""

    region: str
    accepted_at: datetime
    failing_since: datetime | None
    error: str | None


class NameTakenError(Exception):
    """A parcel's id or key is that of another task. Rolls a transaction back."""

    def __init__(self, parcel: Parcel, name: Literal["id", "key"]) -> None:
        super().__init__(f"the {name} of {parcel.id} is taken")
        self.parcel = parcel
        self.name = name


async def keep(db: Database, parcels: Sequence[Parcel]) -> dict[UUID, UUID]:
    """Keep all or none; for each id the one that it is kept under.

    That is another if the same submission waits already, by its key. Raises `NameTakenError`.
    """

    async def attempt() -> dict[UUID, UUID]:
        async def work(connection: Any) -> dict[UUID, UUID]:
            async with connection.transaction():
                return await keep_within(connection, parcels)

        return await db.run(work, "keep_forwarded")

    return await certainty.certain(attempt, attempt)  # what is kept already is the same


async def keep_within(connection: Any, parcels: Sequence[Parcel]) -> dict[UUID, UUID]:
    """As `keep`, within a transaction."""
    kept: dict[UUID, UUID] = {}
    left = list(parcels)
    for _ in range(_TRIES):  # what had a key may be handed on between two looks
        columns = [list(column) for column in zip(*left, strict=True)]
        rows = await connection.fetch(Database.sql("keep_forwarded"), *columns)
        kept |= {row["id"]: row["id"] for row in rows}
        left = [parcel for parcel in left if parcel.id not in kept]
        if not left:
            return kept
        wanted = ([p.id for p in left], [p.region for p in left], [p.key for p in left])
        rows = await connection.fetch(Database.sql("forwarded_like"), *wanted)
        known = [Kept(*row) for row in rows]
        for parcel in left:
            found = _known_as(parcel, known)
            if found is not None:
                kept[parcel.id] = found
        left = [parcel for parcel in left if parcel.id not in kept]
        if not left:
            return kept
    raise NameTakenError(left[0], "id")


def _known_as(parcel: Parcel, known: Sequence[Kept]) -> UUID | None:
    """Under which id the parcel is kept already. Raises `NameTakenError` if that is another task."""
    for kept in known:
        if kept.id == parcel.id:
            if kept.accepted_at != parcel.accepted_at:
                raise NameTakenError(parcel, "id")
            return kept.id
        if parcel.key is not None and (kept.region, kept.key) == (parcel.region, parcel.key):
            if kept.fingerprint != parcel.fingerprint:
                raise NameTakenError(parcel, "key")
            return kept.id
    return None


async def get(db: Database, task_id: UUID) -> Kept | None:
    """What was kept for another region under this id, if anything was."""
    rows = await db.fetch("forwarded", task_id)
    return Kept(*rows[0]) if rows else None


async def take(
    db: Database, region: str, node: str, now: datetime, until: datetime, most: int, most_bytes: int
) -> list[Kept] | None:
    """What is to be handed to a region now, by this node until then; None: another node does it.

    `sent` is as it was before: whether they may have arrived already.
    """
    rows = await db.fetch("take_forwarded", region, node, now, until, most, most_bytes)
    if not rows[0]["mine"]:
        return None
    return [
        Kept(*tuple(row)[2:])._replace(sent=row["was_sent"])
        for row in rows
        if row["id"] is not None
    ]


async def unsend(db: Database, region: str, node: str, taken: Sequence[Kept]) -> None:
    """What this node has taken did not arrive, for certain; unless an earlier try may have."""
    ids = [kept.id for kept in taken if not kept.sent]
    await db.fetch("unsend_forwarded", ids, region, node)


async def settle(db: Database, outcomes: Sequence[Outcome], now: datetime) -> None:
    """Keep what became of them."""
    columns = [list(column) for column in zip(*outcomes, strict=True)]
    await db.fetch("settle_forwarded", *columns, now)


async def end_turn(
    db: Database,
    region: str,
    node: str,
    now: datetime,
    until: datetime | None = None,
    error: str | None = None,
) -> None:
    """Let others hand tasks to a region; after an `error` only from `until` on."""
    await db.fetch("end_turn", region, node, until or now, error, now)


async def cancel(db: Database, task_id: UUID, now: datetime, keep: timedelta, note: Note) -> bool:
    """Cancel a task that waits; False if there is none, or if it may have arrived."""

    async def attempt() -> bool:
        rows = await audit.change(
            db, note, "cancel_forwarded", task_id, now, task_id, now, now + keep
        )
        return bool(rows)

    async def again() -> bool:
        rows = await certainty.read_back(db, "forwarded", task_id)
        kept = Kept(*rows[0]) if rows else None
        done = kept is not None and (kept.state, kept.updated_at) == ("cancelled", now)
        return done or await attempt()

    return await certainty.certain(attempt, again)


async def retry(db: Database, task_id: UUID, now: datetime, note: Note) -> bool:
    """Hand a refused task on once more; False if there is none, or another with its key waits."""

    async def attempt() -> bool:
        return bool(await audit.change(db, note, "retry_forwarded", task_id, now, task_id, now))

    async def again() -> bool:
        rows = await certainty.read_back(db, "forwarded", task_id)
        done = bool(rows) and Kept(*rows[0]).updated_at >= now
        return done or await attempt()

    return await certainty.certain(attempt, again)


async def drop_refused(db: Database, task_id: UUID) -> None:
    """Forget a task whose client was told at once that it is refused."""
    await db.fetch("drop_refused", task_id)


async def heads(db: Database) -> list[Head]:
    """The regions for which tasks wait."""
    return [Head(*row) for row in await db.fetch("outbox_heads")]


async def depths(db: Database) -> dict[tuple[str, str], int]:
    """How many tasks wait or were refused, by region and state; counted up to `DEPTH_MAX`."""
    rows = await db.fetch("outbox_depths", DEPTH_MAX)
    return {(row["region"], row["state"]): row["count"] for row in rows}


async def listing(db: Database, region: str, state: State, after: int, limit: int) -> list[Kept]:
    """What waits for a region or was refused by it, in the order of submission, after a place."""
    return [Kept(*row) for row in await db.fetch("outbox", region, state, after, limit)]


async def forget(db: Database, now: datetime) -> bool:
    """Forget some thousands of those whose time is over; False if there were none."""
    return bool(await db.fetch("forget_forwarded", now))
