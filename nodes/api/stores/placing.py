"""Where a submission is kept: its id is drawn so that it falls into a slot of the right store.

A task with a key or a name goes to the slot that this hashes to, so that one store sees all tasks of a key. What
has none goes to any store that answers. A batch is all or nothing, so all of it goes to one store.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from duly.nodes.api import follow_ups
from duly.nodes.api.checker import Checker
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.problems import FieldError, invalid, unavailable
from duly.nodes.api.stores.routing import Stores
from duly.nodes.api.submissions import Draw
from duly.nodes.api.submit import SubmitHandlers
from duly.nodes.api.wire import TaskSubmission
from duly.storage.errors import StoreUnavailableError
from duly.storage.ids import uuid7_that
from duly.storage.layout import slot_of, slot_of_key
from duly.storage.submitting import NewTask, Submitted
from duly.storage.tasks import TaskRow

T = TypeVar("T")

_AGAIN_S: Final = 0.1
_TRIES: Final = 60  # about as long as a slot takes to move, and a client waits
_ERRORS_MAX: Final = 1000


class _Names(msgspec.Struct):
    """What of an item decides where it is kept."""

    id: UUID | None = None
    idempotency_key: str | None = None
    concurrency_key: str | None = None
    name: str | None = None


_names = msgspec.json.Decoder(_Names)


def _deciding(names: _Names | TaskSubmission) -> list[tuple[str, str]]:
    """The fields that each say where a task is kept, the strictest first."""
    fields = ("concurrency_key", "name", "idempotency_key")
    found = [(field, getattr(names, field)) for field in fields]
    return [(field, value) for field, value in found if value is not None]


class StoresSubmitHandlers(SubmitHandlers):
    """Takes tasks in, for whichever store they belong to."""

    def __init__(
        self, stores: Stores, outbox: Forwarding, payload_limit: int, batch_limit: int
    ) -> None:
        super().__init__(stores.contexts[0], outbox, payload_limit, batch_limit)
        self._stores = stores
        self._each = [
            SubmitHandlers(context, outbox, payload_limit, batch_limit)
            for context in stores.contexts
        ]

    # Drawing ids

    def _draw(self, batch: Sequence[msgspec.Raw] = ()) -> Draw:
        stores = self._batch_stores(batch) if batch else self._stores.answering
        slots = frozenset[int]().union(*map(self._stores.layout.held, stores))

        def draw(body: TaskSubmission, checker: Checker, now_us: int) -> UUID:
            return self._place(body, checker, now_us, slots)

        return draw

    def _place(
        self, body: TaskSubmission, checker: Checker, now_us: int, slots: frozenset[int]
    ) -> UUID:
        deciding = _deciding(body)
        field, key = deciding[0] if deciding else ("id", None)
        for other, _ in deciding[1:]:
            message = f"and {other} cannot be had by one task where there are several stores"
            checker.wrong(field, message)
        if key is not None:
            slots = frozenset([slot_of_key(key)])
        follow_ups.refuse_in_several_stores(body, checker)
        if body.after:
            mine = slots if body.id is None else frozenset([slot_of(body.id)])
            slots = self._beside(body.after, mine, checker)
        if body.id is None:
            return uuid7_that(lambda one: slot_of(one) in slots, now_us // 1000)
        if body.concurrency_key is not None and slot_of(body.id) not in slots:
            message = (
                "is not in the slot of the concurrency_key: leave it out, one that is will be made"
            )
            checker.wrong("id", message)
        elif key is not None and self._stores.of(body.id) != self._stores.of_slot(min(slots)):
            message = f"is not in the store of the {field}: leave one of them out"
            checker.wrong("id", message)
        return body.id

    def _beside(
        self, after: Sequence[UUID], slots: frozenset[int], checker: Checker
    ) -> frozenset[int]:
        """Of these slots those in the store of the tasks that are waited for."""
        there = {self._stores.of(one) for one in after}
        if len(there) > 1:
            checker.wrong("after", "names tasks of several stores: all must be in one")
            return slots
        beside = slots & frozenset(self._stores.layout.held(there.pop()))
        if not beside:
            message = "names a task of another store: leave out the id and the keys, or the batch"
            checker.wrong("after", message)
        return beside or slots

    def _batch_stores(self, batch: Sequence[msgspec.Raw]) -> list[int]:
        """The store that a batch must go to. Raises `Problem` 422 if these are several."""
        first: tuple[int, int] | None = None
        errors: list[FieldError] = []
        for at, item in enumerate(batch):
            try:
                names = _names.decode(item)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # what is wrong with it, its check says
            deciding = _deciding(names)
            if names.id is None and not deciding:
                continue
            field, key = ("id", "") if names.id is not None else deciding[0]
            slot = slot_of(names.id) if names.id is not None else slot_of_key(key)
            store = self._stores.of_slot(slot)
            if first is None:
                first = at, store
            elif store != first[1]:
                message = f"is of another store than tasks[{first[0]}]; a batch is for one store"
                errors.append(FieldError(f"tasks[{at}].{field}", message))
        if errors:
            raise invalid(*errors[:_ERRORS_MAX])
        if first is not None:
            return [first[1]]
        answering = [one for one in self._stores.answering if self._stores.layout.held(one)]
        weights = [len(self._stores.layout.held(one)) for one in answering]
        return random.choices(answering, weights) if answering else []

    # Storing

    async def _insert(self, new: NewTask) -> Submitted:
        return await self._there([new], lambda one: one._insert(new))

    async def _insert_all(
        self, new: list[NewTask], also: Callable[[Any], Awaitable[object]] | None = None
    ) -> list[Submitted]:
        return await self._there(new, lambda one: one._insert_all(new, also))

    async def _named(self, names: Sequence[str]) -> dict[str, TaskRow]:
        by_store: dict[int, list[str]] = {}
        for name in names:
            by_store.setdefault(self._stores.of_slot(slot_of_key(name)), []).append(name)
        found = [await self._each[store]._named(some) for store, some in by_store.items()]
        return {name: row for rows in found for name, row in rows.items()}

    async def _get(self, task_id: UUID) -> dict[UUID, TaskRow]:
        return await self._each[self._stores.of(task_id)]._get(task_id)

    async def _there(
        self, new: Sequence[NewTask], insert: Callable[[SubmitHandlers], Awaitable[T]]
    ) -> T:
        """Insert where the tasks belong, waiting for slots that are on their way to another store."""
        for left in reversed(range(_TRIES)):
            at = {self._stores.layout.store_of(slot_of(task.id)) for task in new}
            if len(at) > 1 and None not in at:
                raise unavailable("slots have moved to another store meanwhile: submit again")
            store = at.pop()
            try:
                if store is not None and not at:
                    return await insert(self._each[store])
            except StoreUnavailableError as error:
                if not error.elsewhere or not left:
                    raise
            await asyncio.sleep(_AGAIN_S)
        raise unavailable("its slot is on its way to another store, or its store is away")
