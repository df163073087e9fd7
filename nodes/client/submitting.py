"""Submit tasks: one, a batch, or as many as there are."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Final, Unpack
from uuid import UUID

import msgspec

from duly.nodes.client import options, sealing, tracing
from duly.nodes.client.batches import Batch, Progress, stream
from duly.nodes.client.calls import Calls
from duly.nodes.client.errors import Conflict, NotFound
from duly.nodes.client.models import Task
from duly.nodes.client.options import NewTask, TaskOptions
from duly.nodes.exact_json import ExactDecoder

Tasks = Iterable[NewTask | Mapping[str, Any]] | AsyncIterable[NewTask | Mapping[str, Any]]


class _Ids(msgspec.Struct):
    ids: list[UUID]


_IDS: Final[ExactDecoder[_Ids]] = ExactDecoder(_Ids)


class Submitting(Calls):
    """The calls that make tasks."""

    async def submit(
        self,
        type: str,  # noqa: A002 - the name that users see
        payload: Any = None,
        **task_options: Unpack[TaskOptions],
    ) -> Task:
        """Submit a task; returns it as stored.

        Without `idempotency_key` one is made, so that a submission whose answer is lost is sent
        again (three times in all) and still makes one task; but not for a periodic task with a `name`, which is
        enough. See `TaskOptions` for the options.
        Raises Conflict if the key was used for another submission, or the name by a task with another definition.
        """
        task = {"type": type, "payload": payload, **task_options}
        once = options.make_once(task)
        body = options.encode(sealing.seal(self._codec, options.submission(task)))
        with tracing.submitting(type) as headers:
            answer = await self._send("POST", "/v1/tasks", body, headers=headers, repeatable=once)
        return self._task(answer)

    async def submit_batch(self, tasks: Iterable[NewTask | Mapping[str, Any]]) -> list[UUID]:
        """Submit up to 10,000 tasks, all or none; returns their ids in the same order.

        Each is a mapping with `type`, perhaps `payload`, and any of `TaskOptions`. A batch whose answer is
        lost is sent again, and still makes each task once; only one in which tasks have ids of your own is
        not.
        """
        return await self._submit_batch(Batch(tasks, self._codec))

    async def submit_many(
        self,
        tasks: Tasks,
        *,
        batch_size: int = 1000,
        progress: Progress = False,
    ) -> list[UUID]:
        """Submit any number of tasks as they come, in batches; returns their ids in the same order.

        `batch_size`: 1 to 10,000 tasks a request. `progress`: True for a bar (`pip install
        "duly[progress]"`), or what is called with how many are stored so far. Each batch is stored as a
        whole or not; an error ends the rest, with a note how many tasks were stored before it.
        """
        with stream(batch_size, progress, tasks) as some:
            async for task in _each(tasks):
                if batch := some.add(task):
                    some.stored(await self.submit_batch(batch))
            if batch := some.rest():
                some.stored(await self.submit_batch(batch))
        return some.ids

    async def _submit_batch(self, batch: Batch) -> list[UUID]:
        with tracing.submitting("a batch") as headers:
            try:
                answer = await self._send(
                    "POST", "/v1/tasks/batch", batch.body,
                    headers=headers, repeatable=batch.is_repeatable,
                )  # fmt: skip
            except Conflict:
                # Nobody else has these ids: it was stored, and its answer lost.
                if batch.ids and await self._is_stored(batch.ids[0]):
                    return batch.ids
                raise
        return _IDS.decode(answer).ids

    async def _is_stored(self, task_id: UUID) -> bool:
        try:
            await self.get(task_id)
        except NotFound:
            return False
        return True


async def _each(tasks: Tasks) -> AsyncIterator[NewTask | Mapping[str, Any]]:
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield task
    else:
        for task in tasks:
            yield task
