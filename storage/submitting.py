"""Takes tasks into the store: each for itself, or all or none.

One statement inserts many; tasks without a key or any other of the rarer fields go by a shorter one. If its answer is lost, what it stored is looked up, and what is missing is
inserted (`certainty`).
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from duly.storage import certainty, waits
from duly.storage.database import Database


class NewTask(NamedTuple):
    """A checked submission. JSON fields are text; `timeout` and `misfire_grace` in seconds.

    `due` is when the first occurrence runs; of periodic tasks `occurrence` is its nominal time, and
    the fields after it are as in `courses.Place`.
    """

    id: UUID
    type: str
    queue: str
    payload: str
    due: datetime
    max_retries: int
    backoff: str | None
    timeout: float
    misfire_grace: float | None
    on_lost: str
    priority: int
    key: str | None
    fingerprint: bytes | None
    tags: str
    own_id: bool
    created_at: datetime
    occurrence: datetime
    schedule: str | None = None
    interval: timedelta | None = None
    overrun: str = "skip"
    following: datetime | None = None
    zone_data: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    fairness_key: str | None = None
    traceparent: str | None = None
    region: str | None = None
    name: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    after: str | None = None
    """JSON text: the ids of tasks that it waits for. Its `due` is `waits.WAITING` then."""


class Submitted(NamedTuple):
    """What became of one submission.

    `slot_owner` is None if the task is due too late for its slot's owner to be told.
    `slot` and `created_at` are None if nothing was inserted: because the key is `known` (then
    `first_id` is its task, `fingerprint` that of its body), or because the id or the name is taken.
    """

    id: UUID
    slot: int | None
    created_at: datetime | None
    slot_owner: str | None
    known: bool
    first_id: UUID | None
    fingerprint: bytes | None
    due: datetime | None = None
    """Set if it waits for nothing any more."""


# The fields that `submit_plain` stores, in its order; the others must be as these are.
_SENT_PLAIN = [NewTask._fields.index(name) for name in (
    "id", "type", "queue", "payload", "due", "max_retries", "backoff", "timeout", "priority", "tags",
    "traceparent", "created_at",
)]  # fmt: skip
_DUE, _OCCURRENCE = NewTask._fields.index("due"), NewTask._fields.index("occurrence")
_NULLABLE = (6, 10)  # backoff and traceparent: there a null is a value too
_PLAIN = [
    (NewTask._fields.index(name), value)
    for name, value in {
        "key": None, "own_id": False, "schedule": None, "concurrency_key": None, "fairness_key": None,
        "region": None, "name": None, "misfire_grace": None, "on_lost": "retry", "overrun": "skip",
        "on_success": None, "on_failure": None,
    }.items()
]  # fmt: skip


class Rejected(Exception):  # noqa: N818 - rolls a transaction back, never seen by users
    """Some submissions of an all-or-nothing batch were refused."""

    def __init__(self, answers: list[Submitted]) -> None:
        super().__init__("all or nothing")
        self.answers = answers


async def submit(
    db: Database,
    tasks: Sequence[NewTask],
    now: datetime,
    keys_until: datetime,
    wake_until: datetime | None = None,
) -> list[Submitted]:
    """Insert tasks, each of which stands for itself: one statement, two if clients chose ids.

    `keys_until`: when their keys expire. `wake_until`: owners of slots need not be told of tasks that are
    due later (None: of all).
    """

    async def attempt(some: Sequence[NewTask]) -> list[Submitted]:
        columns = _Columns(some)
        if columns.are_plain and (answers := await _insert_plain(db, some, columns, wake_until)):
            return answers
        if not any(task.own_id for task in some):
            return [
                Submitted(*row) for row in await db.fetch("submit", *columns.all(now, keys_until))
            ]

        async def work(connection: Any) -> list[Submitted]:
            async with connection.transaction():
                return await _insert(connection, some, columns.all(now, keys_until))

        return await db.run(work, "submit")

    return await _submitted_for_certain(db, tasks, attempt)


async def submit_all(
    db: Database,
    tasks: Sequence[NewTask],
    now: datetime,
    keys_until: datetime,
    wake_until: datetime | None = None,
    also: Callable[[Any], Awaitable[object]] | None = None,
) -> list[Submitted]:
    """Insert all of these tasks or, raising `Rejected`, none.

    A known key with the same fingerprint is no reason to refuse. Times are those of `submit`. Only here may tasks
    wait for others, of the same batch too: raises `waits.CannotWaitError`.
    `also(connection)` is carried out in the same transaction, and may be a second time.
    """

    async def attempt(some: Sequence[NewTask]) -> list[Submitted]:
        columns = _Columns(some)
        if (
            also is None
            and columns.are_plain
            and (answers := await _insert_plain(db, some, columns, wake_until))
        ):
            return answers
        bodies = {task.id: task.fingerprint for task in tasks}

        async def work(connection: Any) -> list[Submitted]:
            async with connection.transaction():
                answers = await _insert(connection, some, columns.all(now, keys_until))
                for answer in answers:
                    same = answer.known and answer.fingerprint == bodies[answer.id]
                    if answer.slot is None and not same:
                        raise Rejected(answers)
                answers = await _wait(connection, some, answers)
                if also is not None:
                    await also(connection)
                return answers

        return await db.run(work, "submit")

    return await _submitted_for_certain(db, tasks, attempt)


async def _submitted_for_certain(
    db: Database,
    tasks: Sequence[NewTask],
    attempt: Callable[[Sequence[NewTask]], Awaitable[list[Submitted]]],
) -> list[Submitted]:
    """Make an attempt; if how it ended is in doubt, look what it stored, and attempt what is missing."""

    async def again() -> list[Submitted]:
        ids, times = [task.id for task in tasks], [task.created_at for task in tasks]
        rows = await certainty.read_back(db, "stored", ids, times)
        there = [
            Submitted(row["id"], row["slot"], row["created_at"], row["owner"], False, None, None)
            for row in rows
        ]
        found = {answer.id for answer in there}
        missing = [task for task in tasks if task.id not in found]
        return there + (await attempt(missing) if missing else [])

    return await certainty.certain(lambda: attempt(tasks), again)


async def _insert_plain(
    db: Database, tasks: Sequence[NewTask], columns: "_Columns", wake_until: datetime | None
) -> list[Submitted]:
    """Insert all of these tasks; none, and no answer, if an id is taken."""
    try:
        rows = await db.fetch("submit_plain", *columns.plain(wake_until))
    except asyncpg.UniqueViolationError:
        return []  # `submit` tells which
    created = {task.id: task.created_at for task in tasks}
    return [
        Submitted(id_, slot, created[id_], owner, False, None, None) for id_, slot, owner in rows
    ]


async def _insert(connection: Any, tasks: Sequence[NewTask], columns: list[Any]) -> list[Submitted]:
    """Within a transaction: insert, then take back whose id had ended in that very moment."""
    rows = await connection.fetch(Database.sql("submit"), *columns)
    answers = [Submitted(*row) for row in rows]
    own = {task.id for task in tasks if task.own_id}
    inserted = [answer.id for answer in answers if answer.slot is not None and answer.id in own]
    if not inserted:
        return answers
    rows = await connection.fetch(Database.sql("withdraw_finished"), inserted)
    taken = {row["id"] for row in rows}
    return [a._replace(slot=None, created_at=None) if a.id in taken else a for a in answers]


async def _wait(
    connection: Any, tasks: Sequence[NewTask], answers: list[Submitted]
) -> list[Submitted]:
    """Within the transaction: those of the inserted tasks that name others begin to wait for them."""
    lists = {task.id: task.after for task in tasks if task.after is not None}
    if not lists:
        return answers
    inserted = {answer.id for answer in answers if answer.slot is not None}
    new = {task_id: after for task_id, after in lists.items() if task_id in inserted}
    free = {one.id: one.due for one in await waits.begin(connection, new)} if new else {}
    return [a._replace(due=free[a.id]) if a.id in free else a for a in answers]


class _Columns:
    """Tasks by column. Of nulls alone nothing is sent: `unnest` fills them in."""

    def __init__(self, tasks: Sequence[NewTask]) -> None:
        self._columns: list[Sequence[Any]] = list(zip(*tasks, strict=True))

    @property
    def are_plain(self) -> bool:
        """Whether `submit_plain` can insert them."""
        columns = self._columns
        return columns[_DUE] == columns[_OCCURRENCE] and all(
            _is_all(columns[at], value) for at, value in _PLAIN
        )

    def all(self, now: datetime, keys_until: datetime) -> list[Any]:
        """What `submit` takes."""
        columns = [[] if _is_all(column, None) else column for column in self._columns]
        return [*columns, now, keys_until]

    def plain(self, wake_until: datetime | None) -> list[Any]:
        """What `submit_plain` takes."""
        columns = [self._columns[at] for at in _SENT_PLAIN]
        for at, column in enumerate(columns):
            if column[0] is None:
                columns[at] = [] if _is_all(column, None) else column
            elif at not in _NULLABLE and _is_all(column, column[0]):
                columns[at] = column[:1]
        return [*columns, wake_until]


def _is_all(column: Sequence[Any], value: object) -> bool:
    return column[-1] == value and column.count(value) == len(column)
