"""Handlers of /v1/tasks."""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from aiohttp import web

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.messages import Submit
from duly.actors.runtime import Reply
from duly.actors.submitter import waiting
from duly.nodes.api import bodies, queries, views
from duly.nodes.api.changes import change
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid, not_found, unavailable
from duly.nodes.api.submissions import Checker, new_task
from duly.nodes.api.wire import (
    Batch,
    BatchAnswer,
    RunPage,
    TaskPage,
    TaskPatch,
    TaskSubmission,
    TaskView,
)
from duly.storage import tasks
from duly.storage.redis import TROUBLE
from duly.storage.tasks import NewTask, Rejected, Submitted, TaskRow
from duly.wheel.durations import from_us

_ANSWER_S = 9.0
_BATCH_BYTES = 64 * 1024 * 1024
_ENVELOPE_BYTES = 64 * 1024  # what a body may hold beside the payload
_READABLE_BYTES = 4 * 1024 * 1024  # up to here a too large payload is named, not only the body

_submission = msgspec.json.Decoder(TaskSubmission)
_batch = msgspec.json.Decoder(Batch)
_patch = msgspec.json.Decoder(TaskPatch)


class TaskHandlers:
    """What clients do to tasks."""

    def __init__(self, context: Context, payload_limit: int, batch_limit: int) -> None:
        self._context = context
        self._db = context.api_db
        self._payload_limit = payload_limit
        self._batch_limit = batch_limit

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        one = "/v1/tasks/{id}"
        return [
            web.post("/v1/tasks", self.submit),
            web.post("/v1/tasks/batch", self.submit_batch),
            web.get("/v1/tasks", self.list, allow_head=False),
            web.get(one, self.get, allow_head=False),
            web.patch(one, self.patch),
            web.post(one + "/cancel", self.cancel),
            web.post(one + "/retry", self.retry),
            web.get(one + "/runs", self.runs, allow_head=False),
        ]

    # Submitting

    async def submit(self, request: web.Request) -> web.Response:
        """Accept one task: 201, or 200 for a known idempotency key with the same body."""
        limit = max(_READABLE_BYTES, self._payload_limit + _ENVELOPE_BYTES)
        raw = await bodies.read(request, limit)
        body = bodies.decode(_submission, raw)
        checker = Checker()
        _take_key_header(request, body, checker)
        now_us = self._context.clock.now_us()
        new = new_task(body, raw, checker, now_us, self._payload_limit)
        checker.raise_if_wrong()
        if new.own_id and new.key is not None:
            # Both names must be free, or nothing may be kept: a transaction of its own.
            answer = (await self._insert_all([new], now_us))[0]
        else:
            answer = await self._insert(new)
        if answer.slot is not None:
            row = views.submitted(new, answer.slot, from_us(now_us))
            return _task(row, 201, {"Location": f"/v1/tasks/{row.id}"})
        first_id = await self._first(new, answer)
        row = await self._find(first_id)
        return _task(row, 200, {"Location": f"/v1/tasks/{row.id}"})

    async def submit_batch(self, request: web.Request) -> web.Response:
        """Accept many tasks, all or none."""
        raw = await bodies.read(request, _BATCH_BYTES)
        items = bodies.decode(_batch, raw).tasks
        if len(items) > self._batch_limit:
            error = FieldError("tasks", f"has more than {self._batch_limit} tasks")
            raise Problem(413, "Too large", error.message, errors=[error])
        now_us = self._context.clock.now_us()
        new, ids = self._check_batch(items, now_us)
        answers = await self._insert_all(new, now_us) if new else []
        firsts = {a.id: a.first_id or a.id for a in answers}
        body = BatchAnswer([UUID(int=firsts[task_id].int) for task_id in ids])
        return _json(body, 201)

    def _check_batch(
        self, items: list[msgspec.Raw], now_us: int
    ) -> tuple[list[NewTask], list[UUID]]:
        """The distinct tasks of a batch, and for each item the id of its task."""
        new: dict[UUID, NewTask] = {}
        keys: dict[str, NewTask] = {}
        ids: list[UUID] = []
        errors: list[FieldError] = []
        for at, item in enumerate(items):
            checker = Checker(f"tasks[{at}].")
            task = self._check_item(bytes(item), checker, now_us)
            if task is None or checker.errors:
                errors += checker.errors
                continue
            first = keys.setdefault(task.key, task) if task.key is not None else task
            if first.fingerprint != task.fingerprint:
                errors.append(FieldError(f"tasks[{at}].idempotency_key", "has another body above"))
            elif first is task and task.id in new:
                errors.append(FieldError(f"tasks[{at}].id", "is used twice"))
            new.setdefault(first.id, first)
            ids.append(first.id)
        if errors:
            raise invalid(*errors)
        return list(new.values()), ids

    def _check_item(self, raw: bytes, checker: Checker, now_us: int) -> NewTask | None:
        try:
            body = _submission.decode(raw)
        except msgspec.ValidationError as error:
            found = bodies.field_error(error)
            checker.wrong(found.field, found.message)
            return None
        return new_task(body, raw, checker, now_us, self._payload_limit)

    async def _insert(self, new: NewTask) -> Submitted:
        reply: Reply[Submitted] = Reply()
        try:
            box = self._context.boxes.submitter
            if not box.offer(Submit(new, reply)):
                raise unavailable("too many submissions are waiting")
            return await reply.wait(_ANSWER_S)
        except TimeoutError:
            raise unavailable("PostgreSQL did not answer in time; the task may be stored") from None

    async def _insert_all(self, new: list[NewTask], now_us: int) -> list[Submitted]:
        now = from_us(now_us)
        until = now + timedelta(seconds=self._context.options.idempotency_ttl_s)
        try:
            answers = await tasks.submit_all(self._db, new, now, until)
        except Rejected as rejected:
            raise _rejection(new, rejected.answers) from None
        await wakes.wake(self._context, waiting(new, answers))
        return answers

    async def _first(self, new: NewTask, answer: Submitted) -> UUID:
        if answer.first_id in (None, new.id):
            raise conflict(f"there is a task with the id {new.id}")
        if answer.fingerprint != new.fingerprint:
            raise conflict("the idempotency key was used with another body")
        assert answer.first_id is not None
        return answer.first_id

    # Reading

    async def get(self, request: web.Request) -> web.Response:
        """One task, finished or not."""
        queries.known_only(request, ())
        return _task(await self._find(_id(request)))

    async def list(self, request: web.Request) -> web.Response:
        """A page of tasks, newest first by id."""
        names = ("status", "type", "queue", "tag", "due_before", "due_after", "limit", "cursor")
        queries.known_only(request, names)
        limit = queries.limit(request)
        rows = await tasks.listing(
            self._db, queries.task_filter(request), queries.task_cursor(request), limit + 1
        )
        more = queries.encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
        return _json(TaskPage([views.task(row) for row in rows[:limit]], more))

    async def runs(self, request: web.Request) -> web.Response:
        """The ended attempts of a task, newest first."""
        queries.known_only(request, ("limit", "cursor"))
        limit, after = queries.limit(request), queries.run_cursor(request)
        task_id = (await self._find(_id(request))).id
        rows = await tasks.runs(self._db, task_id, after, limit + 1)
        more = None
        if len(rows) > limit:
            more = queries.encode_cursor(rows[limit - 1].token, rows[limit - 1].recorded_at)
        return _json(RunPage([views.run(row) for row in rows[:limit]], more))

    async def _find(self, task_id: UUID) -> TaskRow:
        found = await tasks.get(self._db, [task_id])
        if task_id not in found:
            raise not_found(f"task {task_id}")
        return found[task_id]

    # Changing

    async def patch(self, request: web.Request) -> web.Response:
        """Change a pending task; `If-Match` names the version it was read at."""
        task_id = _id(request)
        raw = await bodies.read(request, self._payload_limit + _ENVELOPE_BYTES)
        now_us = self._context.clock.now_us()
        wanted = change(bodies.decode(_patch, raw), now_us, self._payload_limit)
        if_version = _if_match(request)
        done = await tasks.patch(self._db, task_id, wanted, if_version, from_us(now_us))
        row = await self._find(task_id)
        if done is None:
            if if_version is not None and row.version != if_version:
                detail = f"the task is at version {row.version}"
                raise Problem(412, "Precondition failed", detail, more={"task": views.task(row)})
            raise conflict(f"only a pending task can be changed; this one is {row.status}",
                           task=views.task(row))  # fmt: skip
        await wakes.wake(self._context, [done])
        return _task(row)

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a pending or running task."""
        task_id = _id(request)
        now = self._now()
        done = await tasks.cancel(self._db, task_id, now)
        row = await self._find(task_id)
        if done is None:
            raise conflict(f"the task is {row.status}", task=views.task(row))
        if done.was_running:
            await self._tell_worker(task_id, done)
        return _task(row)

    async def _tell_worker(self, task_id: UUID, done: tasks.Cancelled) -> None:
        streams = self._context.streams
        try:
            holder = await streams.supersede(done.queue, task_id, done.token + 1)
            if holder is not None:
                message = {"cancel": str(task_id), "token": done.token}
                await streams.tell_worker(holder, msgspec.json.encode(message))
        except TROUBLE as error:
            # The cancel stands: whatever the worker reports is stale.
            self._context.vitals.redis_error = str(error) or type(error).__name__

    async def retry(self, request: web.Request) -> web.Response:
        """Make a failed task due now."""
        task_id = _id(request)
        done = await tasks.retry(self._db, task_id, self._now())
        row = await self._find(task_id)
        if done is None:
            raise conflict(f"only a failed task can be retried; this one is {row.status}",
                           task=views.task(row))  # fmt: skip
        await wakes.wake(self._context, [done])
        return _task(row)

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


def _take_key_header(request: web.Request, body: TaskSubmission, checker: Checker) -> None:
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return
    if body.idempotency_key not in (None, header):
        checker.wrong("idempotency_key", "differs from the Idempotency-Key header")
    elif not 1 <= len(header) <= 255:
        checker.wrong("Idempotency-Key", "must have 1 to 255 characters")
    body.idempotency_key = header


def _rejection(new: list[NewTask], answers: list[Submitted]) -> Problem:
    by_id = {answer.id: answer for answer in answers}
    errors = []
    for at, task in enumerate(new):
        answer = by_id[task.id]
        if answer.slot is not None:
            continue
        if answer.first_id in (None, task.id):
            errors.append(FieldError(f"tasks[{at}].id", f"there is a task with the id {task.id}"))
        elif answer.fingerprint != task.fingerprint:
            text = "was used with another body"
            errors.append(FieldError(f"tasks[{at}].idempotency_key", text))
    detail = "nothing was stored: " + "; ".join(f"{e.field}: {e.message}" for e in errors[:3])
    return Problem(409, "Conflict", detail, errors=errors)


def _id(request: web.Request) -> UUID:
    text = request.match_info["id"]
    try:
        return UUID(text)
    except ValueError:
        raise invalid(FieldError("id", "is not a UUID")) from None


def _if_match(request: web.Request) -> int | None:
    text = request.headers.get("If-Match")
    if text is None or text == "*":
        return None
    bare = text.strip().removeprefix("W/").strip('"')
    if not bare.isascii() or not bare.isdigit() or len(bare) > 18:
        raise invalid(FieldError("If-Match", 'must be a version in quotes, like "3"'))
    return int(bare)


def _task(row: TaskRow, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    view: TaskView = views.task(row)
    return _json(view, status, {"ETag": f'"{row.version}"', **(headers or {})})


def _json(
    body: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status,
        body=views.encoder.encode(body),
        content_type="application/json",
        headers=headers,
    )
