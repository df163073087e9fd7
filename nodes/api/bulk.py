"""Actions on all tasks that a filter finds: a look at what it would be, and jobs that do it."""

import builtins
from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import Meta, Raw

from duly.actors.context import Context
from duly.nodes.api import answers, bodies, queries, views
from duly.nodes.api.access import caller, note
from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid, not_found
from duly.nodes.api.replies import TaskView
from duly.nodes.api.wire import Duration, Time
from duly.nodes.bulk.acts import ALLOWED, narrowed
from duly.storage import bulk, listing, matches
from duly.storage.audit import Note
from duly.storage.bulk import Action, Job, NewJob
from duly.storage.ids import uuid7
from duly.storage.listing import Filter
from duly.storage.tasks import TaskRow
from duly.wheel.durations import from_us

RATE: float = 500.0
_SAMPLE = 10
_CONTROL_BYTES = 64 * 1024

Rate = Annotated[float, Meta(ge=0.1, le=10_000)]


class BulkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to do to which tasks; `filter` has the parameters of a list of tasks.

    `rate`: tasks a second at most. A reschedule has `run_at` or `delay`.
    """

    action: Literal["cancel", "retry", "pause", "resume", "reschedule"]
    filter: dict[str, str | bool]
    dry_run: bool = False
    rate: Rate = RATE
    run_at: Time | None = None
    delay: Duration | None = None


class BulkPreview(msgspec.Struct):
    """What a job would be about: how many tasks, and some of them. If not `exact`, about so many."""

    count: int
    exact: bool
    sample: list[TaskView]


class BulkJob(msgspec.Struct):
    """A job. `total` is how many tasks there were when it began, about so many if not `exact`.

    `refused`: tasks whose state did not allow it any more when their turn came.
    """

    id: UUID
    action: Action
    filter: Raw
    run_at: datetime | None
    status: Literal["running", "stopping", "stopped", "done", "failed"]
    total: int
    exact: bool
    done: int
    refused: int
    rate: float
    created_by: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: str | None


class BulkPage(msgspec.Struct):
    """Jobs, newest first."""

    items: list[BulkJob]
    next_cursor: str | None


_request = msgspec.json.Decoder(BulkRequest)


class BulkHandlers:
    """Everything under /v1/bulk."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._db = context.api_db

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.post("/v1/bulk", self.begin),
            web.get("/v1/bulk", self.list, allow_head=False),
            web.get("/v1/bulk/{id}", self.get, allow_head=False),
            web.post("/v1/bulk/{id}/stop", self.stop),
        ]

    async def begin(self, request: web.Request) -> web.Response:
        """Begin a job, or with `dry_run` tell what it would be about."""
        queries.known_only(request, ())
        body = bodies.decode(_request, await bodies.read(request, _CONTROL_BYTES))
        now_us = self._context.clock.now_us()
        due = _due(body, now_us)
        text, where = _filter(body)
        finished = body.action == "retry"
        total, exact = await self._count(where, from_us(now_us), finished=finished)
        if body.dry_run:
            found = await self._sample(where, _SAMPLE, finished=finished)
            sample = [views.task(row) for row in found]
            return answers.body(BulkPreview(total, exact, sample))
        job = NewJob(
            uuid7(now_us // 1000), body.action, text, due, body.rate, total, exact, caller().name
        )
        details = {"id": job.id, "action": body.action, "filter": body.filter, "count": total,
                   "exact": exact}  # fmt: skip
        retention = timedelta(seconds=self._context.options.retention_s)
        now = from_us(now_us)
        added = await self._add(job, now - retention, now, note("bulk", details))
        self._wake_runners()
        return answers.body(_view(added), 202, {"Location": f"/v1/bulk/{job.id}"})

    async def list(self, request: web.Request) -> web.Response:
        """A page of jobs, newest first."""
        queries.known_only(request, ("limit", "cursor"))
        limit, after = queries.limit(request), queries.time_and_id_cursor(request)
        jobs = await self._jobs(after, limit + 1)
        more = None
        if len(jobs) > limit:
            last = jobs[limit - 1]
            more = queries.encode_cursor(last.created_at.isoformat(), last.id)
        return answers.body(BulkPage([_view(job) for job in jobs[:limit]], more))

    async def get(self, request: web.Request) -> web.Response:
        """One job."""
        queries.known_only(request, ())
        return answers.body(_view(await self._find(queries.task_id(request))))

    async def stop(self, request: web.Request) -> web.Response:
        """Stop a job: no more tasks are changed; those that were stay so."""
        job_id = queries.task_id(request)
        now = from_us(self._context.clock.now_us())
        job = await self._stop(job_id, now, note("bulk-stop", {"id": job_id}))
        if job is None:
            job = await self._find(job_id)
            if job.finished_at is not None:
                raise conflict(f"the job is {job.status}")
        return answers.body(_view(job))

    async def _find(self, job_id: UUID) -> Job:
        job = await self._get(job_id)
        if job is None:
            raise not_found(f"bulk job {job_id}")
        return job

    def _wake_runners(self) -> None:
        self._context.bulk_news.set()

    # What is asked of the store

    async def _count(self, where: Filter, until: datetime, *, finished: bool) -> matches.Matches:
        return await matches.count(self._db, where, until, finished=finished)

    async def _sample(self, where: Filter, limit: int, *, finished: bool) -> builtins.list[TaskRow]:
        page = await listing.page(self._db, where, None, limit, finished=finished)
        return page.items

    async def _add(self, job: NewJob, forget_before: datetime, now: datetime, noted: Note) -> Job:
        return await bulk.add(self._db, job, forget_before, now, noted)

    async def _jobs(self, after: tuple[datetime, UUID] | None, limit: int) -> builtins.list[Job]:
        return await bulk.jobs(self._db, after, limit)

    async def _get(self, job_id: UUID) -> Job | None:
        return await bulk.get(self._db, job_id)

    async def _stop(self, job_id: UUID, now: datetime, noted: Note) -> Job | None:
        return await bulk.stop(self._db, job_id, now, noted)


def _due(body: BulkRequest, now_us: int) -> datetime | None:
    checker = Checker()
    due = checker.due(body.run_at, body.delay, from_us(now_us))
    checker.raise_if_wrong()
    if body.action != "reschedule" and due is not None:
        name = "delay" if body.run_at is None else "run_at"
        raise invalid(FieldError(name, "goes with reschedule"))
    if body.action == "reschedule" and due is None:
        raise invalid(FieldError("run_at", "reschedule needs run_at or delay"))
    return due


def _filter(body: BulkRequest) -> tuple[str, Filter]:
    """The filter as it is kept, and as it is applied."""
    if not body.filter:
        raise invalid(FieldError("filter", "names nothing: an action on all tasks is not offered"))
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in body.filter.items()
    }
    if unknown := given.keys() - set(queries.TASK_FILTER):
        raise invalid(FieldError(f"filter.{min(unknown)}", "is not a known parameter"))
    try:
        where = queries.task_filter(given)
    except Problem as problem:
        raise invalid(
            *(FieldError(f"filter.{error.field}", error.message) for error in problem.errors)
        ) from None
    if where.status is not None and where.status not in ALLOWED[body.action]:
        named = " or ".join(ALLOWED[body.action])
        raise invalid(FieldError("filter.status", f"must be {named} for {body.action}"))
    return msgspec.json.encode(given).decode(), narrowed(body.action, where)


def _view(job: Job) -> BulkJob:
    return BulkJob(
        id=job.id, action=job.action, filter=Raw(job.filter.encode()), run_at=job.due,
        status=job.status,  # type: ignore[arg-type]  # a CHECK of the table
        total=job.total, exact=job.exact, done=job.done, refused=job.refused, rate=job.rate,
        created_by=job.created_by, created_at=job.created_at, updated_at=job.updated_at,
        finished_at=job.finished_at, error=job.error,
    )  # fmt: skip
