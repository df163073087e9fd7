"""Takes in what another region hands on: POST /v1/forwarded.

Each submission stands for itself. One that comes again, since its answer was lost, is known by its id and
the instant at which it was accepted there, and answered as the task that it has become.
"""

import asyncio

import asyncpg
import msgspec
from aiohttp import web
from msgspec import Raw

from duly.actors.context import Context
from duly.actors.submitter import tell, times
from duly.nodes.api import answers, bodies, follow_ups, upgrades, views
from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid
from duly.nodes.api.replies import TaskView
from duly.nodes.api.submissions import new_task, traced
from duly.nodes.api.wire import TaskSubmission
from duly.nodes.regions.directory import Regions
from duly.nodes.regions.messages import Handed, Handover, HandoverAnswer, Verdict
from duly.storage import submitting, tasks, trace_context
from duly.storage.submitting import NewTask, Rejected, Submitted
from duly.storage.tasks import TaskRow
from duly.storage.waits import CannotWaitError
from duly.wheel.durations import to_us

_BODY_BYTES = 64 * 1024 * 1024
_YEARS = (2000, 9000)
_PAUSE_EVERY = 200
_UNFIT = (asyncpg.DataError, asyncpg.ProgramLimitExceededError)

_handover = msgspec.json.Decoder(Handover)
_submission = msgspec.json.Decoder(TaskSubmission)


class ForwardedHandlers:
    """POST /v1/forwarded."""

    def __init__(self, context: Context, regions: Regions, payload_limit: int) -> None:
        self._context = context
        self._regions = regions
        self._payload_limit = payload_limit

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.post("/v1/forwarded", self.take)]

    async def take(self, request: web.Request) -> web.Response:
        """Take in what can be; answer for each what became of it."""
        given = bodies.decode(_handover, await bodies.read(request, _BODY_BYTES))
        if given.region != self._regions.own:
            # Not 422, which would be the end of them: whoever set up the regions has to look.
            own = "of no region" if self._regions.own is None else f"of region {self._regions.own}"
            raise Problem(421, "Misdirected", f"this is a cluster {own}, not of {given.region}")
        verdicts: list[Verdict | None] = [None] * len(given.tasks)
        checked: dict[int, NewTask] = {}
        for at, handed in enumerate(given.tasks):
            if at % _PAUSE_EVERY == _PAUSE_EVERY - 1:
                await asyncio.sleep(0)
            try:
                checked[at] = self._check(handed)
            except Problem as problem:
                verdicts[at] = _refusal(problem)
        # All come again later: a verdict would be the end of them.
        await upgrades.check(self._context, checked.values())
        for at, verdict in zip(checked, await self._take(list(checked.values())), strict=True):
            verdicts[at] = verdict
        return answers.body(HandoverAnswer([one for one in verdicts if one is not None]))

    def _check(self, handed: Handed) -> NewTask:
        """The task as if it had been submitted here at that instant. Raises `Problem`."""
        if not _YEARS[0] <= handed.accepted_at.year <= _YEARS[1]:
            raise invalid(FieldError("accepted_at", f"is not from {_YEARS[0]} to {_YEARS[1]}"))
        raw = bytes(handed.submission)
        body = bodies.decode(_submission, raw)
        if body.region != self._regions.own:
            raise invalid(FieldError("region", f"is not {self._regions.own}"))
        if body.name is not None:
            raise invalid(FieldError("name", "cannot be had by a task that is handed on"))
        body.id = handed.id
        body.idempotency_key = handed.idempotency_key
        checker = Checker()
        new = new_task(body, raw, checker, to_us(handed.accepted_at), self._payload_limit)
        checker.raise_if_wrong()
        trace = None if handed.traceparent is None else trace_context.checked(handed.traceparent)
        return traced(new, trace)

    async def _take(self, new: list[NewTask]) -> list[Verdict]:
        """All at once, which nearly always succeeds; else each for itself."""
        keys = [task.key for task in new if task.key is not None]
        if len(set(keys)) == len(keys):
            try:
                done = {answer.id: answer for answer in await self._insert(new)} if new else {}
                return [await self._verdict(task, done[task.id]) for task in new]
            except (Rejected, CannotWaitError, *_UNFIT):
                pass  # which ones is found out below
        return [await self._take_one(task) for task in new]

    async def _take_one(self, new: NewTask) -> Verdict:
        try:
            return await self._verdict(new, (await self._insert([new]))[0])
        except Rejected as rejected:
            return await self._verdict(new, rejected.answers[0])
        except CannotWaitError as error:
            return _refusal(follow_ups.refusal(error, [("", new)]))
        except _UNFIT as error:  # a check has a hole; it must not hold up the others
            return _refusal(invalid(FieldError("body", f"cannot be stored: {error}")))

    async def _insert(self, new: list[NewTask]) -> list[Submitted]:
        """In one transaction: where a task has two names, both must be free, or neither may be kept."""
        done = await submitting.submit_all(self._context.api_db, new, *times(self._context))
        await tell(self._context, new, done)
        return done

    async def _verdict(self, new: NewTask, answer: Submitted) -> Verdict:
        if answer.slot is not None and answer.created_at is not None:
            return _accepted(201, views.submitted(new, answer.slot, answer.created_at))
        try:
            return _accepted(200, views.task(await self._first(new, answer)))
        except Problem as problem:
            return _refusal(problem)

    async def _first(self, new: NewTask, answer: Submitted) -> TaskRow:
        """The task that it is already. Raises `Problem` 409 if it is another one."""
        if answer.known and answer.fingerprint != new.fingerprint:
            raise conflict("the idempotency key was used with another body")
        task_id = answer.first_id if answer.known else new.id
        assert task_id is not None
        row = (await tasks.get(self._context.api_db, [task_id])).get(task_id)
        if row is None:
            raise conflict(f"its task, {task_id}, has ended and is no longer kept")
        if not answer.known and row.created_at != new.created_at:
            raise conflict(f"there is a task with the id {new.id}")
        return row


def _accepted(status: int, task: TaskView) -> Verdict:
    return Verdict(status, task.id, task.next_run_at, Raw(views.encoder.encode(task)))


def _refusal(problem: Problem) -> Verdict:
    body = problem.response().body
    assert isinstance(body, bytes)
    return Verdict(problem.status, problem=Raw(body))
