"""Handlers that take tasks in: one, or many at once."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.actors.messages import Submit
from duly.actors.runtime import Reply
from duly.actors.submitter import tell, times
from duly.nodes.api import answers, batches, bodies, follow_ups, upgrades, views
from duly.nodes.api.batches import CheckedBatch
from duly.nodes.api.checker import Checker
from duly.nodes.api.definitions import name_conflict, redefined
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid, unavailable
from duly.nodes.api.replies import BatchAnswer
from duly.nodes.api.submissions import Draw, draw, new_task, take_key_header, traced
from duly.nodes.api.wire import Batch, TaskSubmission
from duly.storage import forwarding, submitting, tasks, trace_context
from duly.storage.forwarding import NameTakenError
from duly.storage.submitting import NewTask, Rejected, Submitted
from duly.storage.tasks import TaskRow
from duly.storage.waits import CannotWaitError

_ANSWER_S = 8.5
_TRIES = 20  # of a submission whose name is had by a task that is gone when it is looked at
_BATCH_BYTES = 64 * 1024 * 1024
_READABLE_BYTES = 4 * 1024 * 1024  # up to here a too large payload is named, not only the body

_submission = msgspec.json.Decoder(TaskSubmission)
_batch = msgspec.json.Decoder(Batch)


class SubmitHandlers:
    """POST /v1/tasks and /v1/tasks/batch."""

    def __init__(
        self, context: Context, outbox: Forwarding, payload_limit: int, batch_limit: int
    ) -> None:
        self._context = context
        self._outbox = outbox
        self._db = context.api_db
        self._payload_limit = payload_limit
        self._body_limit = max(_READABLE_BYTES, payload_limit + bodies.ENVELOPE_BYTES)
        self._batch_limit = batch_limit

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.post("/v1/tasks", self.submit),
            web.post("/v1/tasks/batch", self.submit_batch),
        ]

    async def submit(self, request: web.Request) -> web.StreamResponse:
        """Accept one task: 201, or 200 for a known idempotency key with the same body.

        202: it is kept here, and on its way to another region.
        """
        raw = await bodies.read(request, self._body_limit)
        body = bodies.decode(_submission, raw)
        checker = Checker()
        take_key_header(request.headers.getall("Idempotency-Key", []), body, checker)
        now_us = self._context.clock.now_us()
        new = new_task(body, raw, checker, now_us, self._payload_limit, self._draw())
        elsewhere = body.region is not None and self._outbox.check(body.region, checker, body.name)
        checker.raise_if_wrong()
        new = traced(new, _traceparent(request))
        if elsewhere and body.region is not None:
            return await self._outbox.submit(new, body.region, raw)
        await upgrades.check(self._context, [new])
        answer = await self._insert_one(new)
        if isinstance(answer, TaskRow):
            return answers.task(answer, 200, location=True)
        if new.after is not None and answer.slot is not None:
            row = (await self._get(new.id))[new.id]
            return answers.view(views.task(row), 201, location=True)
        if answer.slot is not None and answer.created_at is not None:
            made = views.submitted(new, answer.slot, answer.created_at)
            return answers.created(request, made, now_us)
        return answers.task(await self._first(new, answer), 200, location=True)

    async def submit_batch(self, request: web.Request) -> web.Response:
        """Accept many tasks, all or none."""
        if "Idempotency-Key" in request.headers:
            # Ignored, it would let a repeated batch in twice.
            message = "is for one task; in a batch give each task its idempotency_key"
            raise invalid(FieldError("Idempotency-Key", message))
        raw = await bodies.read(request, _BATCH_BYTES)
        items = bodies.decode(_batch, raw).tasks
        if len(items) > self._batch_limit:
            error = FieldError("tasks", f"has more than {self._batch_limit} tasks")
            raise Problem(413, "Too large", error.message, errors=[error])
        now_us = self._context.clock.now_us()
        batch = await batches.check(
            items, now_us, self._payload_limit, self._outbox, self._draw(items)
        )
        traceparent = _traceparent(request)
        new = [traced(task, traceparent) for task in batch.tasks.values()]
        await upgrades.check(self._context, new)
        if batch.elsewhere:
            return await self._submit_some_elsewhere(batch, new, traceparent)
        firsts = await self._insert_batch(batch, new)
        return answers.body(BatchAnswer([firsts[task_id] for task_id in batch.ids]), 201)

    async def _submit_some_elsewhere(
        self, batch: CheckedBatch, new: list[NewTask], traceparent: str | None
    ) -> web.Response:
        """All are kept in one transaction: tasks of this region in it, the others in the outbox."""
        parcels = [one._replace(traceparent=traceparent) for one in batch.elsewhere.values()]
        kept: dict[UUID, UUID] = {}

        async def keep(connection: Any) -> None:
            kept.update(await forwarding.keep_within(connection, parcels))

        try:
            if new:
                kept |= await self._insert_batch(batch, new, keep)
            else:
                kept |= await forwarding.keep(self._db, parcels)
        except NameTakenError as taken:
            raise batch.taken(taken) from None
        if any(parcel.id not in kept for parcel in parcels):  # the others were stored already
            kept |= await forwarding.keep(self._db, parcels)
        counts = Counter(parcel.region for parcel in parcels)
        self._outbox.kick(set(counts))
        ids = [kept[task_id] for task_id in batch.ids]
        return answers.body(BatchAnswer(ids, dict(counts)), 201)

    def _draw(self, batch: Sequence[msgspec.Raw] = ()) -> Draw:
        """How the ids of one submission, or of a batch, are made."""
        return draw

    async def _get(self, task_id: UUID) -> dict[UUID, TaskRow]:
        return await tasks.get(self._db, [task_id])

    async def _insert(self, new: NewTask) -> Submitted:
        reply: Reply[Submitted] = Reply()
        if not self._context.boxes.submitter.offer(Submit(new, reply)):
            raise unavailable("too many submissions are waiting")
        try:
            return await reply.wait(_ANSWER_S)
        except TimeoutError:
            raise _too_late() from None
        finally:
            if not reply.answered:
                reply.fail(_too_late())  # nobody waits any longer: what has not begun need not

    async def _insert_one(self, new: NewTask) -> Submitted | TaskRow:
        """What became of it; the task that has its name already, if that is defined like it.

        Raises `Problem` 409 if that is another one.
        """
        for _ in range(_TRIES):
            if new.after is not None or (
                new.key is not None and (new.own_id or new.name is not None)
            ):
                # All of its names must be free, and others there, or nothing is kept: a transaction of its own.
                answer = await self._insert_alone(new)
            else:
                answer = await self._insert(new)
            if new.name is None or answer.known or answer.slot is not None:
                return answer
            row = (await self._named([new.name])).get(new.name)
            if row is not None:
                if fields := redefined(new, row):
                    detail = name_conflict(new.name, fields)
                    raise conflict(detail, task=views.task(row))
                return row
            if new.own_id and new.id in await self._get(new.id):
                return answer
        raise unavailable(f"tasks with the name {new.name} come and go: submit again")

    async def _insert_batch(
        self,
        batch: CheckedBatch,
        new: list[NewTask],
        also: Callable[[Any], Awaitable[object]] | None = None,
    ) -> dict[UUID, UUID]:
        """Insert all or none; for each the id of its task. Raises `Problem` 409, or 422 for what cannot be waited for.

        What has the name of a task that is defined like it is that task, and is not inserted.
        """
        known: dict[UUID, UUID] = {}
        for _ in range(_TRIES):
            left = [task for task in new if task.id not in known]
            if not left:
                return known
            try:
                return known | _firsts(await self._insert_all(left, also))
            except Rejected as rejected:
                same, refused = await self._judge(left, rejected.answers)
            except CannotWaitError as error:
                raise batch.refusal(error) from None
            if refused:
                raise batch.rejection(refused)
            known |= same
        raise unavailable("tasks with the names of the batch come and go: submit again")

    async def _judge(
        self, asked: list[NewTask], answers: Sequence[Submitted]
    ) -> tuple[dict[UUID, UUID], dict[UUID, FieldError]]:
        """Of what was not inserted: which task it is already, or why it is refused.

        Neither, where the task that had its name has just ended.
        """
        by_id = {task.id: task for task in asked}
        left = [answer for answer in answers if answer.slot is None]
        names = [by_id[one.id].name for one in left if not one.known]
        named = await self._named([name for name in names if name is not None])
        same: dict[UUID, UUID] = {}
        refused: dict[UUID, FieldError] = {}
        for answer in left:
            new = by_id[answer.id]
            row = None if new.name is None else named.get(new.name)
            if answer.known:
                if answer.fingerprint != new.fingerprint:
                    refused[new.id] = FieldError("idempotency_key", "was used with another body")
            elif row is not None:
                if fields := redefined(new, row):
                    refused[new.id] = FieldError("name", name_conflict(new.name, fields))
                else:
                    same[new.id] = row.id
            elif new.name is None or new.id in await self._get(new.id):
                refused[new.id] = FieldError("id", f"there is a task with the id {new.id}")
        return same, refused

    async def _named(self, names: Sequence[str]) -> dict[str, TaskRow]:
        """The unfinished tasks that have these names."""
        return await tasks.named(self._db, names)

    async def _insert_alone(self, new: NewTask) -> Submitted:
        try:
            return (await self._insert_all([new]))[0]
        except Rejected as rejected:
            return rejected.answers[0]
        except CannotWaitError as error:
            raise follow_ups.refusal(error, [("", new)]) from None

    async def _insert_all(
        self, new: list[NewTask], also: Callable[[Any], Awaitable[object]] | None = None
    ) -> list[Submitted]:
        inserted = await submitting.submit_all(self._db, new, *times(self._context), also=also)
        await tell(self._context, new, inserted)
        return inserted

    async def _first(self, new: NewTask, answer: Submitted) -> TaskRow:
        """The task that an earlier submission with the same key made."""
        if not answer.known:
            raise conflict(f"there is a task with the id {new.id}")
        if answer.fingerprint != new.fingerprint:
            raise conflict("the idempotency key was used with another body")
        assert answer.first_id is not None
        found = await self._get(answer.first_id)
        if answer.first_id not in found:
            raise conflict(f"the key's task, {answer.first_id}, has ended and is no longer kept")
        return found[answer.first_id]


def _too_late() -> Problem:
    return unavailable("PostgreSQL did not answer in time; the task may be stored")


def _firsts(inserted: list[Submitted]) -> dict[UUID, UUID]:
    """For each submission the id of its task, which an earlier one may have made."""
    return {
        answer.id: answer.id if answer.first_id is None else answer.first_id for answer in inserted
    }


def _traceparent(request: web.Request) -> str | None:
    """The trace that a submission belongs to. One that is not understood is none: the standard asks for it."""
    headers = request.headers.getall("traceparent", ())
    return trace_context.checked(headers[0]) if len(headers) == 1 else None
