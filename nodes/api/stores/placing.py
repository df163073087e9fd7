"""Where a submission is kept: its id is drawn so that it falls into a slot of the right store.

A task with a key or a name goes to the slot that this hashes to, so that one store sees all tasks of a key. What
has none goes to any store that answers. Of a batch, what has none goes to one store: of those that the batch
concerns anyway the one that commits last (`spanning`), so that it is not stored if the batch as a whole is not.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from duly.nodes.api import follow_ups
from duly.nodes.api.batches import CheckedBatch
from duly.nodes.api.checker import Checker
from duly.nodes.api.definitions import redefined
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.problems import FieldError, Problem, unavailable
from duly.nodes.api.stores import spanning
from duly.nodes.api.stores.routing import Stores
from duly.nodes.api.stores.spanning import Also, Part, PartlyStoredError, Spanning
from duly.nodes.api.submissions import Draw
from duly.nodes.api.submit import SubmitHandlers
from duly.nodes.api.wire import TaskSubmission
from duly.storage import tasks
from duly.storage.errors import StoreUnavailableError
from duly.storage.ids import uuid7_that
from duly.storage.layout import slot_of, slot_of_key
from duly.storage.slots import SLOTS
from duly.storage.submitting import NewTask, Rejected, Submitted
from duly.storage.tasks import TaskRow
from duly.storage.waits import CannotWaitError

T = TypeVar("T")

_AGAIN_S: Final = 0.1
_TRIES: Final = 60  # about as long as a slot takes to move, and a client waits
_EVERY_SLOT: Final = frozenset(range(SLOTS))


class _Names(msgspec.Struct):
    """What of an item decides where it is kept."""

    id: UUID | None = None
    idempotency_key: str | None = None
    concurrency_key: str | None = None
    name: str | None = None
    after: list[UUID] = []


_names = msgspec.json.Decoder(_Names)


def _deciding(names: _Names | TaskSubmission) -> list[tuple[str, str]]:
    """The fields that each say where a task is kept, the strictest first."""
    fields = ("concurrency_key", "name", "idempotency_key")
    found = [(field, getattr(names, field)) for field in fields]
    return [(field, value) for field, value in found if value is not None]


def _slot(names: _Names) -> int | None:
    """The slot of the id, the key, or what is waited for; None: it may be in any."""
    if names.id is not None:
        return slot_of(names.id)
    if deciding := _deciding(names):
        return slot_of_key(deciding[0][1])
    return slot_of(names.after[0]) if names.after else None


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
        stores = self._homes(batch) if batch else self._stores.answering
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
            mine = slots if deciding else _EVERY_SLOT
            mine = mine if body.id is None else frozenset([slot_of(body.id)])
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
            message = "names a task of another store: leave out the id and the keys"
            checker.wrong("after", message)
        return beside or slots

    def _homes(self, batch: Sequence[msgspec.Raw]) -> list[int]:
        """The store for what of a batch has neither an id nor a key."""
        concerned: set[int] = set()
        for item in batch:
            try:
                names = _names.decode(item)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # what is wrong with it, its check says
            slot = _slot(names)
            store = None if slot is None else self._stores.layout.store_of(slot)
            if store is not None:  # else its slot moves: it is waited for later
                concerned.add(store)
        if concerned:
            return [spanning.commits_last(concerned)]
        answering = [one for one in self._stores.answering if self._stores.layout.held(one)]
        weights = [len(self._stores.layout.held(one)) for one in answering]
        return random.choices(answering, weights) if answering else []

    # Storing

    async def _insert(self, new: NewTask) -> Submitted:
        async def insert(parts: Sequence[Part]) -> Submitted:
            return await self._each[parts[0].store]._insert(new)

        return await self._there(lambda: [new], insert)

    async def _insert_all(self, new: list[NewTask], also: Also | None = None) -> list[Submitted]:
        batch = Spanning(lambda store, some, then: self._each[store]._insert_all(some, then), also)

        async def insert(parts: Sequence[Part]) -> list[Submitted]:
            self._refuse_away(parts)
            await batch.take_in(parts)
            return [batch.kept[task.id] for task in new]

        def left() -> list[NewTask]:
            return [task for task in new if task.id not in batch.kept]

        try:
            return await self._there(left, insert)
        except (StoreUnavailableError, Problem, Rejected, CannotWaitError) as error:
            if batch.kept:
                raise PartlyStoredError(batch.kept, error) from error
            raise

    def _refuse_away(self, parts: Sequence[Part]) -> None:
        """Hold nothing up in the other stores while one of them is known to be away."""
        if len(parts) > 1:
            answering = self._stores.answering
            for part in parts:
                if part.store not in answering:
                    raise unavailable(f"{self._stores.layout.names[part.store]} is away")

    async def _insert_batch(
        self, batch: CheckedBatch, new: list[NewTask], also: Also | None = None
    ) -> dict[UUID, UUID]:
        try:
            return await super()._insert_batch(batch, new, also)
        except PartlyStoredError as error:
            raise batch.partly_stored(error.kept, str(error)) from error

    async def _judge(
        self, asked: list[NewTask], answers: Sequence[Submitted]
    ) -> tuple[dict[UUID, UUID], dict[UUID, FieldError]]:
        """As of one store; but what has the id of a task that is defined like it is that task.

        So a batch of which a part was stored can be sent again.
        """
        mine = {task.id: task for task in asked if task.own_id and task.key is None}
        taken = [one.id for one in answers if one.slot is None and one.id in mine]
        by_store: dict[int, list[UUID]] = {}
        for one in taken:
            by_store.setdefault(self._stores.of(one), []).append(one)
        same: dict[UUID, UUID] = {}
        for store, ids in by_store.items():
            rows = await tasks.get(self._stores.contexts[store].api_db, ids)
            same.update((one, one) for one, row in rows.items() if not redefined(mine[one], row))
        left = [one for one in answers if one.id not in same]
        others, refused = await super()._judge(asked, left)
        return same | others, refused

    async def _named(self, names: Sequence[str]) -> dict[str, TaskRow]:
        by_store: dict[int, list[str]] = {}
        for name in names:
            by_store.setdefault(self._stores.of_slot(slot_of_key(name)), []).append(name)
        found = [await self._each[store]._named(some) for store, some in by_store.items()]
        return {name: row for rows in found for name, row in rows.items()}

    async def _get(self, task_id: UUID) -> dict[UUID, TaskRow]:
        return await self._each[self._stores.of(task_id)]._get(task_id)

    async def _there(
        self,
        left: Callable[[], list[NewTask]],
        insert: Callable[[Sequence[Part]], Awaitable[T]],
    ) -> T:
        """Insert what is left where it belongs, waiting for slots that are on their way to another store."""
        for again in reversed(range(_TRIES)):
            parts = self._parts(left())
            try:
                if parts is not None:
                    return await insert(parts)
            except StoreUnavailableError as error:
                if not error.elsewhere or not again:
                    raise
            await asyncio.sleep(_AGAIN_S)
        raise unavailable("its slot is on its way to another store, or its store is away")

    def _parts(self, new: Sequence[NewTask]) -> list[Part] | None:
        """These tasks by their stores; None while a slot of them is in none."""
        by_store: dict[int, list[NewTask]] = {}
        for task in new:
            store = self._stores.layout.store_of(slot_of(task.id))
            if store is None:
                return None
            by_store.setdefault(store, []).append(task)
        return [Part(store, some) for store, some in by_store.items()]
