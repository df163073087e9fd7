"""Tasks in a store, put there as submissions and claims do, for tests that have no node."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from duly.storage import claims, slots, submitting
from duly.storage.claims import Attempt, Claimed, Ended, Settlement
from duly.storage.database import Database
from duly.storage.slots import SLOTS, DueRow

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ME = "node-a"


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Database]:
    """A pool on `url` for the length of the block."""
    db = Database(url, **options)
    try:
        yield db
    finally:
        await db.close()


def new_task(**changes: Any) -> submitting.NewTask:
    """A checked submission, due at `NOW`."""
    plain = submitting.NewTask(
        id=uuid4(), type="t", queue="default", payload="{}", due=NOW, max_retries=3, backoff=None,
        timeout=300.0, misfire_grace=None, on_lost="retry", priority=5, key=None, fingerprint=None,
        tags="{}", own_id=False, created_at=NOW, occurrence=NOW,
    )  # fmt: skip
    return plain._replace(**({"occurrence": changes["due"]} if "due" in changes else {}) | changes)


async def submit(db: Database, count: int = 1, **changes: Any) -> list[DueRow]:
    """Insert tasks; answers them as the wheel keeps them."""
    new = [new_task(**changes) for _ in range(count)]
    answers = await submitting.submit(db, new, NOW, NOW)
    by_id = {answer.id: answer for answer in answers}
    rows = []
    for one in new:
        slot = by_id[one.id].slot
        assert slot is not None
        rows.append(DueRow(one.id, slot, one.due, 0, one.priority, one.queue))
    return rows


async def own_all(db: Database, owner: str = ME) -> dict[int, int]:
    """Take every slot; answers slot -> epoch."""
    return (await slots.take(db, range(SLOTS), owner, NOW)).epochs


async def claimed(db: Database, count: int = 1, **changes: Any) -> list[Claimed]:
    """Tasks that `ME` has just claimed, in the order of their submission."""
    rows = await submit(db, count, **changes)
    claim = await claims.claim(db, ME, rows, await own_all(db), NOW)
    by_id = {task.id: task for task in claim.tasks}
    return [by_id[row.id] for row in rows]


def attempt(task: Claimed | Ended, **changes: Any) -> Attempt:
    """What is known of a one-off's first attempt when it is decided what follows."""
    plain = Attempt(task.id, task.token, 0, 3, None, "retry", NOW, NOW)
    return plain._replace(**changes)


def over(end: Ended) -> Settlement:
    """The decision that a task ends with this."""
    return Settlement(end, attempt(end))


def again(end: Ended, at: datetime, *, counts: bool = True) -> Settlement:
    """The decision that a task waits again after this."""
    return Settlement(end, attempt(end), at, counts)


def ended(task: Claimed, outcome: claims.Outcome = "completed", **changes: Any) -> Ended:
    """What a worker would report of `task`."""
    plain = Ended(task.id, task.token, outcome, "w1", NOW, NOW)
    return plain._replace(**changes)


async def query(db: Database, sql: str, *args: Any) -> list[Any]:
    """Any statement."""

    async def work(connection: Any) -> list[Any]:
        rows: list[Any] = await connection.fetch(sql, *args)
        return rows

    return await db.run(work)


async def statuses(db: Database, ids: Sequence[UUID]) -> list[str]:
    """Status of each of these tasks, wherever it is kept."""
    rows = await query(
        db,
        "select id, status from tasks where id = any($1) union all "
        "select id, status from finished_tasks where id = any($1)",
        list(ids),
    )
    known = {row["id"]: row["status"] for row in rows}
    assert len(known) == len(rows), "a task is kept twice"
    return [known[one] for one in ids]


async def outcomes(db: Database, task_id: UUID) -> list[str]:
    """Outcomes of a task's runs, oldest first."""
    rows = await query(db, "select outcome from runs where task_id = $1 order by token", task_id)
    return [row["outcome"] for row in rows]
