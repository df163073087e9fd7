"""Checks what is to follow a task: `on_success` and `on_failure`, and the tasks that it waits for (`after`)."""

import json
from collections.abc import Sequence
from uuid import UUID

import msgspec

from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import FieldError, Problem, invalid
from duly.nodes.api.wire import FollowUp, TaskSubmission
from duly.storage.submitting import NewTask
from duly.storage.waits import WAITING, CannotWaitError

IN_A_ROW = 5
"""So many follow-ups may stand inside each other."""

_encoder = msgspec.json.Encoder()


def add(new: NewTask, body: TaskSubmission, checker: Checker, limit_bytes: int) -> NewTask:
    """The task with what is to follow it, and what it is to follow."""
    if body.on_success is not None or body.on_failure is not None:
        new = new._replace(
            on_success=_checked(body.on_success, "on_success", checker, limit_bytes),
            on_failure=_checked(body.on_failure, "on_failure", checker, limit_bytes),
        )
    if not body.after:
        return new
    if body.schedule is not None:
        checker.wrong("after", "is for one-off tasks: a periodic one goes by its schedule")
    if body.id in body.after:
        checker.wrong(f"after[{body.after.index(body.id)}]", "is the task itself")
    after = json.dumps([str(one) for one in body.after])
    return new._replace(after=after, due=WAITING)


def _checked(body: FollowUp | None, field: str, checker: Checker, limit_bytes: int) -> str | None:
    """As it is stored: JSON text with every default. Raises `Problem` 413 if it is too large."""
    if body is None:
        return None
    text = _spec(body, checker.within(field), limit_bytes, 1)
    if len(text) > limit_bytes:
        error = checker.within(field).error("body", f"is larger than {limit_bytes} bytes")
        raise Problem(413, "Too large", f"{error.field}: {error.message}", errors=[error])
    return text.decode()


def _spec(body: FollowUp, checker: Checker, limit_bytes: int, place: int) -> bytes:
    grace, key = body.misfire_grace, body.concurrency_key
    said: dict[str, object] = {
        "type": body.type,
        "queue": body.queue,
        "payload": msgspec.Raw(checker.payload(bytes(body.payload), limit_bytes).encode()),
        "delay": checker.duration("delay", body.delay),
        "max_retries": body.max_retries,
        "backoff": body.backoff,
        "timeout": checker.timeout(body.timeout),
        "misfire_grace": None if grace is None else checker.duration("misfire_grace", grace),
        "on_lost": body.on_lost,
        "priority": body.priority,
        "tags": msgspec.Raw(checker.tags(body.tags).encode()),
        "concurrency_key": checker.key("concurrency_key", key),
        "concurrency_limit": checker.concurrency_limit(key, body.concurrency_limit),
        "fairness_key": checker.key("fairness_key", body.fairness_key),
    }
    for name, then in (("on_success", body.on_success), ("on_failure", body.on_failure)):
        if then is None:
            continue
        if place == IN_A_ROW:
            checker.wrong(name, f"is more than {IN_A_ROW} follow-ups in a row")
        else:
            said[name] = msgspec.Raw(_spec(then, checker.within(name), limit_bytes, place + 1))
    # Null is what the store takes for a field that is not there; a payload may be null itself.
    return _encoder.encode({k: v for k, v in said.items() if v is not None or k == "payload"})


def refuse_in_several_stores(body: TaskSubmission, checker: Checker) -> None:
    """A follow-up is kept where its parent is, and a task with a key where its key is."""
    for name, then in (("on_success", body.on_success), ("on_failure", body.on_failure)):
        _refuse_keys(then, checker.within(name))


def _refuse_keys(body: FollowUp | None, checker: Checker) -> None:
    if body is None:
        return
    if body.concurrency_key is not None:
        message = "cannot be had by a follow-up where there are several stores"
        checker.wrong("concurrency_key", message)
    _refuse_keys(body.on_success, checker.within("on_success"))
    _refuse_keys(body.on_failure, checker.within("on_failure"))


def below(tasks: Sequence[NewTask]) -> list[tuple[UUID, UUID]]:
    """Of a batch, in order: (task, the one it waits for) where that stands below it, so that none is a circle."""
    waiting = [task for task in tasks if task.after is not None]
    if not waiting:
        return []
    places = {task.id: at for at, task in enumerate(tasks)}
    return [
        (task.id, parent)
        for task in waiting
        for parent in map(UUID, json.loads(task.after or "[]"))
        if places.get(parent, -1) >= places[task.id]
    ]


def refusal(error: CannotWaitError, tasks: Sequence[tuple[str, NewTask]]) -> Problem:
    """422 that names each id which a task cannot wait for; with each task the path to it."""
    return invalid(
        *(
            FieldError(f"{path}after[{at}]", error.reasons[parent])
            for path, task in tasks
            for at, parent in enumerate(map(UUID, json.loads(task.after or "[]")))
            if parent in error.reasons
        )
    )
