"""Handlers for workers that report over HTTP, and for confirmed starts."""

import logging
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.actors.messages import Outcomes
from duly.actors.outcomes import refined
from duly.actors.patience import Patience
from duly.actors.runtime import Reply
from duly.nodes.api import bodies, json_guard, queries
from duly.nodes.api.problems import FieldError, conflict, invalid, unavailable
from duly.nodes.api.replies import ReportAnswer
from duly.nodes.api.wire import NULL, ReportBatch, ReportBody, StartBody
from duly.storage import claims, tasks
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.storage.stream_facts import REPORT_JSON_BYTES_MAX
from duly.wheel.durations import from_us

log = logging.getLogger("duly.api")

_ANSWER_S = 8.5
_BODY_BYTES = 64 * 1024 * 1024
_start = msgspec.json.Decoder(StartBody)
_report = msgspec.json.Decoder(ReportBody)
_reports = msgspec.json.Decoder(ReportBatch)


class WorkerHandlers:
    """Start and report."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._redis = Patience("cleaning up after reports", log)
        self._postgres = Patience("finding the queues of what was reported", log)

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.post("/v1/tasks/{id}/start", self.start),
            web.post("/v1/tasks/{id}/report", self.report),
            web.post("/v1/reports", self.reports),
        ]

    async def start(self, request: web.Request) -> web.Response:
        """Grant a token its one start: 200, or 409 if it is stale or was granted to another."""
        task_id = queries.task_id(request)
        body = bodies.decode(_start, await bodies.read(request, 64 * 1024))
        for field in ("start_id", "worker"):
            if "\0" in getattr(body, field):
                raise invalid(FieldError(field, "holds a NUL character"))
        granted = await claims.start(
            self._context.api_db, task_id, body.token, body.start_id, body.worker, self._now()
        )
        if not granted:
            raise conflict("stale: this token may not start, or has been started")
        return web.json_response({"started": True})

    async def report(self, request: web.Request) -> web.Response:
        """Record one outcome: 200, or 409 if its token is stale."""
        task_id = queries.task_id(request)
        body = bodies.decode(_report, await bodies.read(request, _BODY_BYTES))
        recorded = await self._record([self._ended(task_id, body, "")])
        if not recorded[0]:
            raise conflict("stale: the task does not run under this token")
        return web.json_response({"recorded": True})

    async def reports(self, request: web.Request) -> web.Response:
        """Record many outcomes; tells for each whether it was recorded."""
        body = bodies.decode(_reports, await bodies.read(request, _BODY_BYTES))
        ended = [
            self._ended(item.id, item, f"reports[{at}].") for at, item in enumerate(body.reports)
        ]
        answer = ReportAnswer(await self._record(ended) if ended else [])
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    def _ended(self, task_id: UUID, body: ReportBody, prefix: str) -> Ended:
        for field, data in (("result", bytes(body.result)), ("error", bytes(body.error))):
            if len(data) > REPORT_JSON_BYTES_MAX:
                message = f"has {len(data)} bytes, more than {REPORT_JSON_BYTES_MAX}"
                raise invalid(FieldError(f"{prefix}{field}", message))
            try:
                json_guard.check(data)
            except json_guard.UnfitJsonError as error:
                joint = "." if error.path and not error.path.startswith("[") else ""
                at = f"{prefix}{field}{joint}{error.path}"
                raise invalid(FieldError(at, str(error))) from None
        return Ended(
            id=task_id,
            token=body.token,
            outcome=refined(body.outcome, bytes(body.error)),
            worker=None if body.worker is None else body.worker.replace("\0", "�"),
            started_at=_instant(f"{prefix}started", body.started),
            finished_at=_instant(f"{prefix}finished", body.finished) or self._now(),
            result=_text(body.result),
            error=_text(body.error),
            may_retry=bool(body.retry),
            delay_s=body.delay,
        )

    async def _record(self, ended: list[Ended]) -> list[bool]:
        reply: Reply[list[bool]] = Reply()
        if not self._context.boxes.recorder.offer(Outcomes(ended, reply, reported=True)):
            raise unavailable("too many reports are waiting")
        try:
            recorded = await reply.wait(_ANSWER_S)
        except TimeoutError:
            raise unavailable("PostgreSQL did not answer in time; report again") from None
        await self._clean_up([one for one, ok in zip(ended, recorded, strict=True) if ok])
        return recorded

    async def _clean_up(self, ended: list[Ended]) -> None:
        """Take what is over out of the stream. It is recorded whether this succeeds or not."""
        try:
            found = await tasks.queues(self._context.api_db, [one.id for one in ended])
        except StoreUnavailableError as error:
            self._postgres.failed(error)  # upkeep removes what is left
            return
        self._postgres.worked()
        queues: dict[str, list[tuple[bytes, str | bytes, str | bytes]]] = {}
        for one in ended:
            if one.id in found:
                item = (b"", str(one.id), str(one.token))
                queues.setdefault(found[one.id], []).append(item)
        try:
            for queue, items in queues.items():
                await self._context.streams.settle(queue, items)
        except TROUBLE as error:
            # Upkeep removes what is left.
            self._redis.failed(error)
        else:
            self._redis.worked()

    def _now(self) -> datetime:
        return from_us(self._context.clock.now_us())


def _text(raw: msgspec.Raw) -> str | None:
    data = bytes(raw)
    return None if data == bytes(NULL) else data.decode()


def _instant(field: str, ms: float | None) -> datetime | None:
    if ms is None:
        return None
    if not 0 <= ms < 4e13:
        raise invalid(FieldError(field, "must be milliseconds since the epoch"))
    return datetime.fromtimestamp(ms / 1000, UTC)
