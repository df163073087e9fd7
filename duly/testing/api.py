"""Answers the client of a cluster in memory: the API's own checks and shapes, without HTTP."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import unquote
from uuid import UUID

import msgspec

from duly.nodes.api import bodies, views
from duly.nodes.api.batches import CheckedBatch
from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid, not_found
from duly.nodes.api.replies import BatchAnswer, TaskView
from duly.nodes.api.submissions import new_task
from duly.nodes.api.wire import Batch, TaskSubmission
from duly.nodes.client import errors
from duly.nodes.client.transport import Transport
from duly.nodes.settings import Settings
from duly.storage.submitting import NewTask
from duly.testing.clock import SetClock
from duly.testing.errors import NotInMemory
from duly.testing.store import Kept, Store
from duly.wheel.durations import parse_time

_submission = msgspec.json.Decoder(TaskSubmission)
_batch = msgspec.json.Decoder(Batch)
_TASK: Final = re.compile(r"/v1/tasks/([^/]+)(?:/(cancel|retry|runs))?")
_NAME: Final = re.compile(r"/v1/names/([^/]+)")
_FILTERS: Final = frozenset({"status", "type", "queue", "tag", "name", "due_before", "due_after"})


class MemoryTransport(Transport):
    """In the place of an HTTP session."""

    def __init__(
        self,
        store: Store,
        clock: SetClock,
        on_change: Callable[[], None],
        on_cancel: Callable[[UUID, int], None],
    ) -> None:
        """`on_change` is called after each change, `on_cancel` with an attempt that is to be stopped."""
        super().__init__("http://memory", None, 1.0)
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self._on_cancel = on_cancel
        self._payload_limit = Settings().payload_limit_bytes
        self._batch_limit = Settings().batch_limit

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool,
    ) -> bytes:
        """Return the body of the answer; raises what the client raises for that of a node."""
        try:
            return views.encoder.encode(self._answer(method, path, body or b"", query or {}))
        except Problem as problem:
            said = problem.response().body
            assert isinstance(said, bytes)
            raise errors.from_answer(problem.status, said, None) from None

    def _answer(self, method: str, path: str, body: bytes, query: Mapping[str, str]) -> object:
        if path == "/v1/tasks":
            return self._submit(body) if method == "POST" else self._list(query)
        if path == "/v1/tasks/batch":
            return self._submit_batch(body)
        if method == "GET" and (name := _NAME.fullmatch(path)):
            named = self._store.named(unquote(name[1]))
            return _task(named) if named else _missing("task with that name")
        found = _TASK.fullmatch(path)
        if found is None or method == "PATCH":
            raise NotInMemory(f"{method} {path}")
        kept = self._find(found[1])
        if found[2] == "runs":
            runs = [views.run(run) for run in reversed(kept.runs)]
            return _page(runs, query)
        return self._act(kept, found[2])

    def _find(self, text: str) -> Kept:
        try:
            kept = self._store.get(UUID(text))
        except ValueError:
            kept = None
        return kept or _missing(f"task {text}")

    def _act(self, kept: Kept, action: str | None) -> object:
        status, token = kept.row.status, kept.row.version
        if action == "cancel":
            if kept.is_over:
                raise _refusal("only an unfinished task can be cancelled", kept)
            self._store.cancel(kept)
            if status == "running":
                self._on_cancel(kept.row.id, token)
        elif action == "retry":
            if status != "failed":
                raise _refusal("only a failed task can be retried", kept)
            self._store.retry(kept)
        answer = _task(kept)
        if action is not None:
            self._on_change()
        return answer

    def _submit(self, raw: bytes) -> object:
        checker = Checker()
        new = self._checked(bodies.decode(_submission, raw), raw, checker)
        checker.raise_if_wrong()
        known = self._store.known(new)
        if isinstance(known, FieldError):
            is_key = known.field == "idempotency_key"
            raise conflict(f"the idempotency key {known.message}" if is_key else known.message)
        answer = _task(known or self._store.add(new))  # before it begins
        self._on_change()
        return answer

    def _submit_batch(self, raw: bytes) -> BatchAnswer:
        items = bodies.decode(_batch, raw).tasks
        if len(items) > self._batch_limit:
            error = FieldError("tasks", f"has more than {self._batch_limit} tasks")
            raise Problem(413, "Too large", error.message, errors=[error])
        batch, wrong = CheckedBatch(), []
        for at, item in enumerate(items):
            checker = Checker(f"tasks[{at}].")
            try:
                body = bodies.decode(_submission, bytes(item))
            except Problem as problem:
                wrong += [FieldError(f"tasks[{at}].{e.field}", e.message) for e in problem.errors]
                continue
            batch.add(self._checked(body, item, checker), checker)
            wrong += checker.errors
        if wrong:
            raise invalid(*wrong)
        known = {new.id: self._store.known(new) for new in batch.tasks.values()}
        refused = {i: what for i, what in known.items() if isinstance(what, FieldError)}
        if refused:
            raise batch.rejection(refused)
        same = {i: what.row.id for i, what in known.items() if isinstance(what, Kept)}
        for new in batch.tasks.values():
            if new.id not in same:
                self._store.add(new)
        self._on_change()
        return BatchAnswer([same.get(task_id, task_id) for task_id in batch.ids])

    def _checked(self, body: TaskSubmission, raw: bytes | msgspec.Raw, checker: Checker) -> NewTask:
        for field in ("misfire_grace", "region", "on_success", "on_failure", "after"):
            if getattr(body, field) is not None:
                raise NotInMemory(field)
        for field in ("pause_after", "expect_within"):
            if body.schedule is not None and field in body.schedule:
                raise NotInMemory(f"schedule.{field}")
        return new_task(body, raw, checker, self._clock.now_us(), self._payload_limit)

    def _list(self, query: Mapping[str, str]) -> object:
        where = {name: value for name, value in query.items() if name not in ("cursor", "limit")}
        if unknown := sorted(where.keys() - _FILTERS):
            raise NotInMemory(f"a list by {unknown[0]}")
        found = [_task(one) for one in self._store.newest_first() if _fits(one, where)]
        return _page(found, query)


def _task(kept: Kept) -> TaskView:
    return views.task(kept.row)


def _fits(kept: Kept, where: Mapping[str, str]) -> bool:
    row = kept.row
    for name, value in where.items():
        if name in ("due_before", "due_after"):
            due, limit = row.next_run_at, parse_time(value)
            if due is None or (due >= limit if name == "due_before" else due < limit):
                return False
        elif name == "tag":
            key, _, wanted = value.partition(":")
            if msgspec.json.decode(row.tags).get(key) != wanted:
                return False
        elif getattr(row, name) != value:
            return False
    return True


def _page(items: Sequence[Any], query: Mapping[str, str]) -> dict[str, object]:
    begin = int(query.get("cursor", "0"))
    end = begin + int(query["limit"])
    return {"items": items[begin:end], "next_cursor": str(end) if end < len(items) else None}


def _missing(what: str) -> NoReturn:
    raise not_found(what)


def _refusal(rule: str, kept: Kept) -> Problem:
    return conflict(f"{rule}; this one is {kept.row.status}", task=_task(kept))
