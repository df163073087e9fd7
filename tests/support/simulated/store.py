"""PostgreSQL as its named statements behave: tables in memory, each statement in one step.

`tests/simulation/test_store_conforms.py` holds it to the real one.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from duly.storage.queries import statements

Row = dict[str, Any]


class Record:
    """Reads as asyncpg's does: by name, and in order."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.values())


class Watcher(Protocol):
    """Is told of what was committed."""

    def task_changed(self, old: Row | None, new: Row | None) -> None:
        """A row of `tasks` appeared, changed or went."""

    def finished(self, row: Row) -> None:
        """A row of `finished_tasks` appeared."""

    def recorded(self, run: Row) -> None:
        """A row of `runs` appeared."""

    def slot_taken(self, slot: int, epoch: int, owner: str | None) -> None:
        """A slot's owner has changed, taken it again, or let it go (None)."""

    def claimed_under(self, slot: int, epoch: int, owner: str) -> None:
        """A claim of this slot has committed, carrying this epoch."""


_statements: dict[str, Callable[..., list[Row]]] = {}


def statement(function: Callable[..., list[Row]]) -> Callable[..., list[Row]]:
    """Register what a named statement does; the function's name is its name."""
    _statements[function.__name__] = function
    return function


class Store:
    """Tables. `slots`: how many slots there are (as many as the product's, or fewer)."""

    def __init__(self, slots: int, now: Callable[[], Any], watcher: Watcher | None = None) -> None:
        self.now = now
        self.watcher = watcher
        self.slot_count = slots
        self.token_base = 0
        """Of the first timeline."""
        self.tasks: dict[UUID, Row] = {}
        self.finished: dict[UUID, Row] = {}
        self.runs: list[Row] = []
        self.rejected: dict[tuple[Any, ...], Row] = {}
        self.keys: dict[str, Row] = {}
        self.waits: set[tuple[UUID, UUID]] = set()
        """Rows of task_waits: (parent, task)."""
        self.queues: dict[str, Row] = {}
        self.slots: dict[int, Row] = {
            slot: {"slot": slot, "owner": None, "epoch": 0, "free_since": None}
            for slot in range(slots)
        }
        self.overrides: dict[str, Callable[..., list[Row]]] = {}
        """Statements that behave otherwise: planted bugs."""

    @staticmethod
    def known() -> set[str]:
        """The statements that are simulated."""
        return set(_statements)

    def run(self, name: str, args: Sequence[Any]) -> list[Record]:
        """Run a statement. Raises LookupError for one that is not simulated."""
        function = self.overrides.get(name) or _statements.get(name)
        if function is None:
            raise LookupError(
                f"the simulated store does not know the statement {name!r}: "
                "add it to tests/support/simulated and to the conformance test"
            )
        return [Record(row) for row in function(self, *args)]

    def transaction(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run `work(connection)` to its end in one step; undone if it raises."""
        names = ("tasks", "finished", "runs", "rejected", "keys", "waits", "queues", "slots")
        before = {name: deepcopy(getattr(self, name)) for name in names}
        watcher, self.watcher = self.watcher, None
        try:
            result = _finish(work(_Connection(self)))
        except BaseException:
            for name, value in before.items():
                setattr(self, name, value)
            raise
        finally:
            self.watcher = watcher
        self._tell_difference(before["tasks"])
        return result

    def _tell_difference(self, before: dict[UUID, Row]) -> None:
        if self.watcher is not None:
            for task_id in before.keys() | self.tasks.keys():
                old, new = before.get(task_id), self.tasks.get(task_id)
                if old != new:
                    self.watcher.task_changed(old, new)

    def slot_of(self, task_id: UUID) -> int:
        """As the generated column; fewer slots are those of the remainder."""
        return hashlib.sha256(task_id.bytes).digest()[0] % self.slot_count

    # What statements do to rows

    def take(
        self, slot: int, owner: str | None, epoch: int, free_since: datetime | None = None
    ) -> None:
        """Set the owner and epoch of a slot; without an owner, since when."""
        self.slots[slot] = {
            "slot": slot, "owner": owner, "epoch": epoch, "free_since": free_since
        }  # fmt: skip
        if self.watcher is not None:
            self.watcher.slot_taken(slot, epoch, owner)

    def put(self, row: Row) -> None:
        """Insert a task, or put a changed row in its place."""
        old = self.tasks.get(row["id"])
        self.tasks[row["id"]] = row
        if self.watcher is not None:
            self.watcher.task_changed(old, row)

    def remove(self, task_id: UUID) -> None:
        """Delete a task."""
        old = self.tasks.pop(task_id)
        if self.watcher is not None:
            self.watcher.task_changed(old, None)

    def finish(self, row: Row, **changes: Any) -> Row:
        """Move a task to the finished ones."""
        plain = dict.fromkeys(("started_at", "worker", "result", "error", "waits_for", "awaited"))
        done = {**row, **plain, **changes}
        self.remove(row["id"])
        self.finished[row["id"]] = done
        if self.watcher is not None:
            self.watcher.finished(done)
        return done

    def record(self, row: Row, token: int, attempt: int, outcome: str, **facts: Any) -> None:
        """Insert a run; `facts` holds `recorded_at` and what else is known."""
        run = {
            "task_id": row["id"], "type": row["type"], "queue": row["queue"], "token": token,
            "occurrence": row["occurrence"], "attempt": attempt, "outcome": outcome,
            "verdict": None, "worker": None, "started_at": None,
            "finished_at": None, "recorded_at": None, "error": None, "result": None, "follow_up": None, **facts,
        }  # fmt: skip
        self.runs.append(run)
        if self.watcher is not None:
            self.watcher.recorded(run)


class _Connection:
    """Within a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = {text: name for name, text in statements().items()}

    async def fetch(self, sql: str, *args: Any) -> list[Record]:
        """Run a statement, by its text."""
        return self._store.run(self._names[sql], args)

    @asynccontextmanager
    async def transaction(self) -> Any:
        """It is in one already."""
        yield


def _finish(work: Awaitable[Any]) -> Any:
    """Run a coroutine that waits for nothing."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("a transaction waited for something other than its statements")
