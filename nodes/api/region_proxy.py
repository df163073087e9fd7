"""Reads and changes of a task that is in another region are sent there.

Which region it is in: the one that the request names (`?region=`), or the one that this cluster has handed the
task to. What waits here to be handed on is answered here. A task of this region costs nothing more.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final
from uuid import UUID

from aiohttp import web
from aiohttp.typedefs import Handler

from duly.actors.context import Context
from duly.nodes.api import access, answers, bodies, queries
from duly.nodes.api.explain import Explanation
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.problems import FieldError, Problem, conflict, invalid
from duly.nodes.api.reasons import InOutbox
from duly.nodes.api.replies import LedgerPage, RunPage, TaskPage
from duly.nodes.regions.directory import Regions, UnreachableError
from duly.nodes.regions.messages import FORWARDED_FOR, FORWARDED_ROLE
from duly.storage import forwarding
from duly.storage.forwarding import Kept
from duly.wheel.durations import from_us

_ONE: Final = "/v1/tasks/{id}"
PROXIED: Final = frozenset(
    [(method, _ONE) for method in ("GET", "PATCH")]
    + [("GET", f"{_ONE}/{name}") for name in ("runs", "waiting", "explain", "ledger")]
    + [("POST", f"{_ONE}/{name}") for name in ("cancel", "retry", "pause", "resume", "run-now")]
)
"""What is sent on to the region of its task."""

_PASSED: Final = ("If-Match",)
_PASSED_BACK: Final = ("Content-Type", "ETag", "Retry-After", "Location")
_RETRY_S: Final = 5


class RegionProxy:
    """Around the handlers of single tasks, on a node that has a region."""

    def __init__(
        self, context: Context, regions: Regions, outbox: Forwarding, payload_limit: int
    ) -> None:
        self._context = context
        self._regions = regions
        self._outbox = outbox
        self._limit = payload_limit + bodies.ENVELOPE_BYTES

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Ask here first, unless the request names its region or has a body, which is read once."""
        resource = request.match_info.route.resource
        route = (request.method, "" if resource is None else resource.canonical)
        if route not in PROXIED or access.caller().behalf is not None:
            return await handler(request)
        named = self._named(request)
        if named is not None:
            query = [(name, value) for name, value in request.query.items() if name != "region"]
            request = request.clone(rel_url=request.rel_url.with_query(query))
            if named != self._regions.own:
                return await self._pass_on(request, named, queries.task_id(request))
        elif request.method == "PATCH":
            kept = await self._kept(request)
            return await (handler(request) if kept is None else self._elsewhere(request, kept))
        try:
            return await handler(request)
        except Problem as problem:
            kept = await self._kept(request) if problem.status == 404 and named is None else None
            if kept is None:
                raise
        return await self._elsewhere(request, kept)

    def _named(self, request: web.Request) -> str | None:
        given = request.query.getall("region", [])
        if not given:
            return None
        wrong = self._regions.objection(given[0]) if len(given) == 1 else "is given more than once"
        if wrong is not None:
            raise invalid(FieldError("region", wrong))
        return given[0]

    async def _kept(self, request: web.Request) -> Kept | None:
        return await forwarding.get(self._context.api_db, queries.task_id(request))

    async def _elsewhere(self, request: web.Request, kept: Kept) -> web.StreamResponse:
        if kept.state != "delivered":
            return await self._here(request, kept)
        if not self._regions.is_other(kept.region):
            raise _unreachable(kept.region, "this cluster does not know it any more")
        assert kept.task_id is not None
        return await self._pass_on(request, kept.region, kept.task_id)

    async def _pass_on(self, request: web.Request, region: str, task_id: UUID) -> web.Response:
        """Send the request to its region, with the rights of whoever has sent it."""
        who = access.caller()
        assert who.role is not None
        headers: dict[str, str] = {FORWARDED_ROLE: who.role}
        if who.name is not None:
            headers[FORWARDED_FOR] = who.name
        headers.update({name: request.headers[name] for name in _PASSED if name in request.headers})
        body = await bodies.read(request, self._limit) if request.method == "PATCH" else None
        rest = request.path.removeprefix(f"/v1/tasks/{request.match_info['id']}")
        query = request.rel_url.raw_query_string
        path = f"/v1/tasks/{task_id}{rest}{'?' if query else ''}{query}"
        try:
            answer = await self._regions.ask(
                region, request.method, path, body=body, headers=headers
            )
        except UnreachableError as error:
            doubt = (
                " (it may have been carried out)" if error.sent and request.method != "GET" else ""
            )
            raise _unreachable(region, f"{error}{doubt}") from None
        if answer.status in (401, 403, 421) or 300 <= answer.status < 400:
            # Between the two clusters, not the client's business: it may do what it asks for.
            raise _unreachable(region, f"it answered {answer.status} to this cluster")
        back = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return web.Response(status=answer.status, body=answer.body, headers=back)

    # What is not there yet, or will never be

    async def _here(self, request: web.Request, kept: Kept) -> web.Response:
        action = request.path.rpartition("/")[2]
        actions: Mapping[str, Callable[[Kept], Awaitable[web.Response]]] = {
            "runs": self._no_runs, "waiting": self._none_waits, "ledger": self._no_ledger,
            "explain": self._explain,
            "cancel": self._cancel, "retry": self._retry,
        }  # fmt: skip
        if action in actions:
            return await actions[action](kept)
        if request.method == "GET":
            may_see = access.caller().may("payload-view")
            return answers.body(self._outbox.view(kept, payloads=may_see))
        raise self._refusal(kept)

    async def _no_runs(self, _: Kept) -> web.Response:
        return answers.body(RunPage([], None))

    async def _none_waits(self, _: Kept) -> web.Response:
        return answers.body(TaskPage([], None))

    async def _no_ledger(self, _: Kept) -> web.Response:
        return answers.body(LedgerPage([], None))

    async def _explain(self, kept: Kept) -> web.Response:
        why = f"; {kept.error}" if kept.error else ""
        said = {
            "waiting": f"It waits here to be handed to region {kept.region}{why}.",
            "refused": f"Region {kept.region} has refused it.",
            "cancelled": f"It was cancelled before it was handed to region {kept.region}.",
        }[kept.state]
        reason = InOutbox(
            message=said, region=kept.region, state=kept.state, since=kept.accepted_at,
            detail=kept.error or kept.problem,
        )  # fmt: skip
        at = from_us(self._context.clock.now_us())
        return answers.body(Explanation(kept.id, self._outbox.view(kept).status, at, [reason]))

    async def _cancel(self, kept: Kept) -> web.Response:
        now = from_us(self._context.clock.now_us())
        keep = timedelta(seconds=self._context.options.retention_s)
        noted = access.note("cancel", {"region": kept.region})
        if not await forwarding.cancel(self._context.api_db, kept.id, now, keep, noted):
            raise self._refusal(await self._again(kept))
        return answers.body(self._outbox.view(await self._again(kept)))

    async def _retry(self, kept: Kept) -> web.Response:
        now = from_us(self._context.clock.now_us())
        noted = access.note("retry", {"region": kept.region})
        if not await forwarding.retry(self._context.api_db, kept.id, now, noted):
            raise self._refusal(await self._again(kept))
        if self._regions.is_other(kept.region):
            self._outbox.kick({kept.region})
        return answers.body(self._outbox.view(await self._again(kept)))

    async def _again(self, kept: Kept) -> Kept:
        return await forwarding.get(self._context.api_db, kept.id) or kept

    def _refusal(self, kept: Kept) -> Problem:
        if kept.state == "waiting":
            sent = ", and may have arrived there" if kept.sent else ""
            return _unreachable(kept.region, f"the task waits to be handed to it{sent}")
        if kept.state == "delivered":
            return _unreachable(kept.region, "the task has arrived there just now")
        return conflict(
            f"the task is {kept.state} and was not handed to region {kept.region}",
            task=self._outbox.view(kept),
        )


def _unreachable(region: str, detail: str) -> Problem:
    return Problem(
        503, "Unavailable", f"the task is in region {region}: {detail}",
        headers={"Retry-After": str(_RETRY_S)}, more={"region": region},
    )  # fmt: skip
