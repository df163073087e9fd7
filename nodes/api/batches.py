"""A batch of submissions: every item checked, every bad one named by its index."""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from duly.nodes.api import bodies, follow_ups
from duly.nodes.api.checker import Checker
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.problems import FieldError, Problem, invalid
from duly.nodes.api.submissions import Draw, draw, new_task
from duly.nodes.api.wire import TaskSubmission
from duly.storage.forwarding import NameTakenError, Parcel
from duly.storage.submitting import NewTask, Submitted
from duly.storage.waits import CannotWaitError

_PAUSE_EVERY = 200  # items: about as many milliseconds as the node's timing can spare, at worst
_ERRORS_MAX = 1000
_submission = msgspec.json.Decoder(TaskSubmission)


class CheckedBatch:
    """The distinct tasks of a batch, and for each item the id of its task."""

    def __init__(self) -> None:
        self.tasks: dict[UUID, NewTask] = {}
        self.ids: list[UUID] = []
        self.elsewhere: dict[UUID, Parcel] = {}
        """What is handed to other regions; not among the tasks."""
        self._keys: dict[str, NewTask] = {}
        self._names: dict[str, NewTask] = {}

    def add(self, task: NewTask, checker: Checker, parcel: Parcel | None = None) -> None:
        """Take in the next item; one with a key that was seen stands for the same task."""
        first = task if task.key is None else self._keys.setdefault(task.key, task)
        if first.fingerprint != task.fingerprint:
            checker.wrong("idempotency_key", "is used above with another body")
        elif first is task and (task.id in self.tasks or task.id in self.elsewhere):
            checker.wrong("id", "is used above")
        if task.name is not None and self._names.setdefault(task.name, first) is not first:
            checker.wrong("name", "is used above")
        if parcel is None:
            self.tasks.setdefault(first.id, first)
        elif first is task:
            self.elsewhere.setdefault(task.id, parcel)
        self.ids.append(first.id)

    def rejection(self, refused: Mapping[UUID, FieldError]) -> Problem:
        """409 that names each item which the store refused; fields are those of the item."""
        errors = [
            FieldError(f"tasks[{at}].{refused[task_id].field}", refused[task_id].message)
            for at, task_id in enumerate(self.ids)
            if task_id in refused
        ]
        return self._conflict(errors)

    def refusal(self, error: CannotWaitError) -> Problem:
        """422 that names each id which a task cannot wait for."""
        named = [
            (f"tasks[{at}].", self.tasks[one])
            for at, one in enumerate(self.ids)
            if one in self.tasks
        ]
        return follow_ups.refusal(error, named)

    def taken(self, taken: NameTakenError) -> Problem:
        """409 that names the items whose name the outbox refused."""
        field, text = "id", f"there is a task with the id {taken.parcel.id}"
        if taken.name == "key":
            field, text = "idempotency_key", "was used with another body"
        at = [at for at, task_id in enumerate(self.ids) if task_id == taken.parcel.id]
        return self._conflict([FieldError(f"tasks[{one}].{field}", text) for one in at])

    def partly_stored(self, stored: Mapping[UUID, Submitted], why: str) -> Problem:
        """503 that tells which of the tasks are stored (`ids`: null for the others)."""
        found = [stored.get(task_id) for task_id in self.ids]
        ids = [None if one is None else one.first_id or one.id for one in found]
        count = sum(one is not None for one in ids)
        detail = (
            f"{count} of {len(ids)} tasks are stored, and `ids` names them; of the others it is not known, or they are "
            f"not: {why}. Send the batch again with the same ids and keys: what is stored is not stored twice"
        )
        headers = {"Retry-After": "1"}
        return Problem(503, "Partly stored", detail, headers=headers, more={"ids": ids})

    @staticmethod
    def _conflict(errors: list[FieldError]) -> Problem:
        detail = "nothing was stored: " + "; ".join(f"{e.field}: {e.message}" for e in errors[:3])
        return Problem(409, "Conflict", detail, errors=errors[:_ERRORS_MAX])


async def check(
    items: Sequence[msgspec.Raw],
    now_us: int,
    payload_limit: int,
    outbox: Forwarding,
    draw: Draw = draw,
) -> CheckedBatch:
    """Check every item. Raises `Problem` 422 or 413 naming each bad index (1,000 at most)."""
    batch = CheckedBatch()
    errors: list[FieldError] = []
    too_large: Problem | None = None
    for at, item in enumerate(items):
        if at % _PAUSE_EVERY == _PAUSE_EVERY - 1:
            await asyncio.sleep(0)
        checker = Checker(f"tasks[{at}].")
        try:
            _check_item(item, checker, now_us, payload_limit, batch, outbox, draw)
        except Problem as problem:
            too_large = too_large or problem
            errors += problem.errors
        errors += checker.errors
    places = {task_id: at for at, task_id in enumerate(batch.ids)}
    errors += [
        FieldError(f"tasks[{places[task]}].after", f"names {parent}, which stands below it")
        for task, parent in follow_ups.below(list(batch.tasks.values()))
    ]
    if too_large is not None:
        raise Problem(too_large.status, too_large.title, too_large.detail,
                      errors=errors[:_ERRORS_MAX])  # fmt: skip
    if errors:
        raise invalid(*errors[:_ERRORS_MAX])
    return batch


def _check_item(
    raw: msgspec.Raw,
    checker: Checker,
    now_us: int,
    payload_limit: int,
    batch: CheckedBatch,
    outbox: Forwarding,
    draw: Draw,
) -> None:
    try:
        body = _submission.decode(raw)
    except msgspec.ValidationError as error:
        found = bodies.field_error(error)
        checker.wrong(found.field, found.message)
        return
    task = new_task(body, raw, checker, now_us, payload_limit, draw)
    elsewhere = body.region is not None and outbox.check(body.region, checker, body.name)
    if not checker.errors:
        parcel = outbox.parcel(task, body.region, bytes(raw)) if elsewhere and body.region else None
        batch.add(task, checker, parcel)
