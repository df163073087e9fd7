"""Submissions for other regions: kept in the outbox, then handed on while the client waits for a moment."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import Raw

from duly.actors.context import Context
from duly.actors.runtime import Reply
from duly.nodes.api import access, answers, views
from duly.nodes.api.checker import Checker
from duly.nodes.api.problems import Problem, conflict, unavailable
from duly.nodes.api.replies import ForwardingView, TaskView
from duly.nodes.api.submissions import new_task
from duly.nodes.api.wire import NULL, TaskSubmission
from duly.nodes.regions.directory import Regions
from duly.nodes.regions.messages import Verdict
from duly.storage import forwarding
from duly.storage.forwarding import Kept, NameTakenError, Parcel
from duly.storage.submitting import NewTask
from duly.wheel.durations import to_us

_WAIT_S = 2.0
"""So long a client waits for the other region's answer; then it is told that its task is on its way."""

_submission = msgspec.json.Decoder(TaskSubmission)


class _Version(msgspec.Struct):
    version: int


class _Status(msgspec.Struct):
    status: int = 422


_version = msgspec.json.Decoder(_Version)
_status = msgspec.json.Decoder(_Status)


class Forwarding:
    """Used by the handlers of submissions and of tasks."""

    def __init__(self, context: Context, regions: Regions, payload_limit: int) -> None:
        self._context = context
        self._regions = regions
        self._payload_limit = payload_limit

    def check(self, region: str | None, checker: Checker, name: str | None = None) -> bool:
        """Whether a submission is for another region; notes what is wrong with it then."""
        wrong = self._regions.objection(region)
        if wrong is not None:
            checker.wrong("region", wrong)
        if not self._regions.is_other(region):
            return False
        if access.caller().behalf is not None:
            checker.wrong("region", f"is {region}, and what was forwarded is not forwarded again")
        if name is not None:
            checker.wrong("name", "cannot be had by a task of another region: submit it there")
        return True

    def parcel(self, new: NewTask, region: str, raw: bytes) -> Parcel:
        """What is kept of a submission."""
        return Parcel(
            new.id, region, new.created_at, raw, new.key, new.fingerprint, new.traceparent,
            access.caller().name,
        )  # fmt: skip

    async def submit(self, new: NewTask, region: str, raw: bytes) -> web.Response:
        """Keep one, and answer what the other region says, or 202 if it says nothing in time."""
        reply: Reply[Verdict] = Reply()
        self._regions.replies[new.id] = reply
        try:
            kept = await self.keep([self.parcel(new, region, raw)])
            if kept[new.id] == new.id:
                verdict = await self._verdict(region, reply)
                if verdict is not None:
                    return await self._answer(new.id, verdict)
        finally:
            self._regions.replies.pop(new.id, None)
        found = await forwarding.get(self._context.api_db, kept[new.id])
        if found is None:  # its time is over already
            raise unavailable(f"region {region} was slow to answer; ask for task {new.id}")
        if found.state == "refused" and found.problem is not None:  # by way of another node
            problem = Raw(found.problem.encode())
            verdict = Verdict(_status.decode(problem).status, problem=problem)
            return await self._answer(found.id, verdict)
        headers = {"Location": f"/v1/tasks/{found.id}"}
        return answers.body(self.view(found._replace(body=raw)), 202, headers)

    async def keep(self, parcels: Sequence[Parcel]) -> dict[UUID, UUID]:
        """Keep all or none. Raises `Problem` 409."""
        try:
            kept = await forwarding.keep(self._context.api_db, parcels)
        except NameTakenError as taken:
            raise name_taken(taken) from None
        self.kick({parcel.region for parcel in parcels})
        return kept

    def kick(self, regions: set[str]) -> None:
        """Something waits for these regions."""
        for region in regions:
            self._regions.kicks[region].set()

    async def _answer(self, task_id: UUID, verdict: Verdict) -> web.Response:
        """As the other region would have answered the client itself."""
        if verdict.task_id is None:
            await forwarding.drop_refused(self._context.api_db, task_id)
            kind = "application/problem+json"
            problem = bytes(verdict.problem)
            return web.Response(status=verdict.status, body=problem, content_type=kind)
        version = _version.decode(verdict.task).version
        headers = {"ETag": f'"{version}"', "Location": f"/v1/tasks/{verdict.task_id}"}
        kind, task = "application/json", bytes(verdict.task)
        return web.Response(status=verdict.status, body=task, content_type=kind, headers=headers)

    async def _verdict(self, region: str, reply: Reply[Verdict]) -> Verdict | None:
        if region in self._regions.failing:
            return None
        try:
            return await reply.wait(_WAIT_S)
        except TimeoutError:
            return None

    def view(self, kept: Kept, *, payloads: bool = True) -> TaskView:
        """A task of another region as it is known here: not there yet, or not at all."""
        new = self._again(kept)
        view = views.submitted(new, kept.slot, kept.accepted_at)
        if not payloads:
            view.payload, view.hidden = NULL, ["payload", "result"]
        view.forwarding = ForwardingView(
            region=kept.region,
            state=kept.state,
            since=kept.accepted_at,
            sent=kept.sent,
            problem=views.raw(kept.problem),
            error=kept.error,
        )
        view.updated_at = kept.updated_at
        if kept.state in ("refused", "cancelled"):
            view.status = "failed" if kept.state == "refused" else "cancelled"
            view.next_run_at = None
            view.finished_at = kept.updated_at
            view.error = views.raw(kept.problem)
        return view

    def _again(self, kept: Kept) -> NewTask:
        raw = kept.body or b""
        body = _submission.decode(raw)
        body.id, body.idempotency_key = kept.id, kept.key
        limit = max(self._payload_limit, len(raw))  # it was let in, whatever the limit is now
        return new_task(body, raw, Checker(), to_us(kept.accepted_at), limit)


def name_taken(taken: NameTakenError) -> Problem:
    """409: the id or the key is that of another task."""
    if taken.name == "key":
        return conflict("the idempotency key was used with another body")
    return conflict(f"there is a task with the id {taken.parcel.id}")
