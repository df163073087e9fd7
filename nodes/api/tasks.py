"""Handlers that show and change tasks."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import UNSET

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.feed import Change
from duly.nodes.api import answers, bodies, queries, views
from duly.nodes.api.access import caller, note
from duly.nodes.api.cancelling import Cancelling
from duly.nodes.api.changes import change
from duly.nodes.api.problems import Problem, conflict, not_found
from duly.nodes.api.replies import RunPage, TaskPage
from duly.nodes.api.rescheduling import Refused, Rescheduling
from duly.nodes.api.wire import TaskPatch
from duly.storage import courses, listing, tasks, waits
from duly.storage.audit import Note
from duly.storage.errors import NameInUseError
from duly.storage.listing import Filter, Page
from duly.storage.tasks import TaskRow
from duly.wheel.durations import from_us

_patch = msgspec.json.Decoder(TaskPatch)


class TaskHandlers:
    """Everything under /v1/tasks but submitting."""

    def __init__(self, context: Context, payload_limit: int) -> None:
        self._context = context
        self._db = context.api_db
        self._payload_limit = payload_limit
        self._rescheduling = Rescheduling(context)
        self._cancelling = Cancelling(context)

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        one = "/v1/tasks/{id}"
        return [
            web.get("/v1/tasks", self.list, allow_head=False),
            web.get(one, self.get, allow_head=False),
            web.get("/v1/names/{name:.+}", self.get_named, allow_head=False),
            web.patch(one, self.patch),
            web.post(one + "/cancel", self.cancel),
            web.post(one + "/retry", self.retry),
            web.post(one + "/pause", self.pause),
            web.post(one + "/resume", self.resume),
            web.post(one + "/run-now", self.run_now),
            web.get(one + "/runs", self.runs, allow_head=False),
            web.get(one + "/waiting", self.waiting, allow_head=False),
        ]

    # Reading

    async def get(self, request: web.Request) -> web.Response:
        """One task, finished or not."""
        queries.known_only(request, ())
        row = await self._find(queries.task_id(request))
        return answers.task(row, payloads=_sees_payloads())

    async def get_named(self, request: web.Request) -> web.Response:
        """The unfinished task that has a name."""
        queries.known_only(request, ())
        name = queries.task_name(request)
        found = (await self._named(name)).get(name)
        if found is None:
            raise not_found(f"unfinished task with the name {name}")
        return answers.task(found, payloads=_sees_payloads())

    async def _named(self, name: str) -> dict[str, TaskRow]:
        return await tasks.named(self._db, [name])

    async def list(self, request: web.Request) -> web.Response:
        """A page of tasks, newest first by id."""
        queries.known_only(request, (*queries.TASK_FILTER, "limit", "cursor"))
        where, after = queries.task_filter(request.query), queries.task_cursor(request)
        found = await self._page(where, after, queries.limit(request))
        more = None if found.after is None else queries.encode_cursor(found.after)
        payloads = _sees_payloads()
        items = [views.task(row, payloads=payloads) for row in found.items]
        return answers.body(TaskPage(items, more))

    async def _page(self, where: Filter, after: UUID | None, limit: int) -> Page:
        return await listing.page(self._db, where, after, limit)

    async def runs(self, request: web.Request) -> web.Response:
        """The ended attempts of a task, newest first."""
        queries.known_only(request, ("limit", "cursor"))
        limit, after = queries.limit(request), queries.run_cursor(request)
        task_id = (await self._find(queries.task_id(request))).id
        rows = await tasks.runs(self._db, task_id, after, limit + 1)
        more = None
        if len(rows) > limit:
            last = rows[limit - 1]
            more = queries.encode_cursor(last.token, last.recorded_at.isoformat())
        payloads = _sees_payloads()
        items = [views.run(row, payloads=payloads) for row in rows[:limit]]
        return answers.body(RunPage(items, more))

    async def waiting(self, request: web.Request) -> web.Response:
        """A page of the tasks that wait for a task (`after`), newest first."""
        queries.known_only(request, ("limit", "cursor"))
        limit, after = queries.limit(request), queries.task_cursor(request)
        task_id = (await self._find(queries.task_id(request))).id
        rows = await waits.waiting(self._db, task_id, after, limit + 1)
        more = queries.encode_cursor(rows[limit - 1].id) if len(rows) > limit else None
        payloads = _sees_payloads()
        items = [views.task(row, payloads=payloads) for row in rows[:limit]]
        return answers.body(TaskPage(items, more))

    async def _find(self, task_id: UUID) -> TaskRow:
        found = await tasks.get(self._db, [task_id])
        if task_id not in found:
            raise not_found(f"task {task_id}")
        return found[task_id]

    # Changing

    async def patch(self, request: web.Request) -> web.Response:
        """Change a pending task; `If-Match` names the version it was read at."""
        task_id, if_version = queries.task_id(request), queries.if_match(request)
        raw = await bodies.read(request, self._payload_limit + bodies.ENVELOPE_BYTES)
        now_us = self._context.clock.now_us()
        body = bodies.decode(_patch, raw)
        wanted = change(body, now_us, self._payload_limit)
        self._check(task_id, wanted)
        named = [name for name, value in msgspec.structs.asdict(body).items() if value is not UNSET]
        noted = note("change", {"fields": named})
        if wanted.schedule is None and wanted.overrun is None:
            now = from_us(now_us)
            done = await tasks.patch(self._db, task_id, wanted, if_version, now, note=noted)
        else:
            done = await self._rescheduling.patch(task_id, wanted, if_version, noted)
        if done is not None and done.changed:
            self._context.feed.tell("changed", [task_id])
            if done.row.status == "pending" and not done.row.paused:
                await wakes.wake(self._context, [done.waiting])
            return answers.task(done.row)
        row = await self._find(task_id) if done is None else done.row
        if if_version is not None and row.version != if_version:
            detail = f"the task is at version {row.version}"
            raise Problem(412, "Precondition failed", detail, more={"task": views.task(row)})
        raise _refusal("only a pending task can be changed", row)

    def _check(self, task_id: UUID, wanted: tasks.Change) -> None:
        """Raise `Problem` for a change that cannot be made wherever the task is kept."""

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancel a pending or running task."""
        task_id = queries.task_id(request)
        done = await self._cancelling.cancel(task_id, note("cancel"))
        if done is None:
            raise _refusal("only an unfinished task can be cancelled", await self._find(task_id))
        return answers.task(done.row)

    async def retry(self, request: web.Request) -> web.Response:
        """Make a failed task due now."""
        task_id = queries.task_id(request)
        try:
            done = await tasks.retry(self._db, task_id, self._now(), note("retry"))
        except NameInUseError as error:
            row = await self._find(task_id)
            raise conflict(str(error), task=views.task(row)) from None
        if done is None:
            raise _refusal("only a failed task can be retried", await self._find(task_id))
        self._context.feed.tell("changed", [task_id])
        await wakes.wake(self._context, [done.waiting])
        return answers.task(done.row)

    async def pause(self, request: web.Request) -> web.Response:
        """No more claims of a task until it is resumed."""
        task_id = queries.task_id(request)
        await courses.pause(self._db, task_id, self._now(), paused=True, note=note("pause"))
        row = await self._find(task_id)
        if row.finished_at is not None:
            raise _refusal("only an unfinished task can be paused", row)
        self._context.feed.tell("paused", [task_id])
        return answers.task(row)

    async def resume(self, request: web.Request) -> web.Response:
        """End the pause of a task."""
        return await self._act(
            request,
            "resume",
            "resumed",
            self._rescheduling.resume,
            "only an unfinished task can be resumed",
        )

    async def run_now(self, request: web.Request) -> web.Response:
        """Make a pending task due now."""
        return await self._act(
            request,
            "run-now",
            "changed",
            self._rescheduling.run_now,
            "only a pending task can be run now",
        )

    async def _act(
        self,
        request: web.Request,
        action: str,
        what: Change,
        act: Callable[[UUID, Note], Awaitable[None]],
        rule: str,
    ) -> web.Response:
        task_id = queries.task_id(request)
        try:
            await act(task_id, note(action))
        except Refused as refused:
            row = await self._find(task_id)
            raise conflict(f"{rule}; this one {refused}", task=views.task(row)) from None
        self._context.feed.tell(what, [task_id])
        return answers.task(await self._find(task_id))

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


def _refusal(rule: str, row: TaskRow) -> Problem:
    return conflict(f"{rule}; this one is {row.status}", task=views.task(row))


def _sees_payloads() -> bool:
    """Asked for by reads alone: who may change a task may see its payload too."""
    return caller().may("payload-view")
