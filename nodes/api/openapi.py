"""The API's own description, OpenAPI 3.1, from the same types that decode and encode."""

from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from aiohttp import web

from duly.nodes.api import cookies, replies, wire
from duly.nodes.api.bulk import BulkJob, BulkPage, BulkPreview, BulkRequest
from duly.nodes.api.cluster import SlotList, WorkerList
from duly.nodes.api.events import PARAMETERS as EVENT_FILTERS
from duly.nodes.api.explain import Explanation
from duly.nodes.api.health import Readiness
from duly.nodes.api.load import DueLoad
from duly.nodes.api.nodes import NodeList
from duly.nodes.api.outbox import RegionList
from duly.nodes.api.parameters import parameter
from duly.nodes.api.problems import FieldError
from duly.nodes.api.queries import TASK_FILTER
from duly.nodes.api.queues import QueueChange, QueuePage, QueueView
from duly.nodes.api.region_proxy import PROXIED
from duly.nodes.api.schedules import PARAMETERS, SchedulePreview
from duly.nodes.api.sessions import SessionView, SignIn
from duly.nodes.api.stats import Series, Stats
from duly.nodes.regions.messages import Handover, HandoverAnswer

_TYPES = (
    wire.TaskSubmission, replies.BatchAnswer, wire.TaskPatch, replies.TaskView, replies.TaskPage,
    replies.RunPage, wire.StartBody, wire.ReportBody, wire.ReportBatch, replies.ReportAnswer,
    replies.AlertPage, replies.AuditPage, replies.LedgerPage, replies.EntryPage, Readiness, FieldError,
    SchedulePreview, NodeList,
    SessionView, SignIn,
    WorkerList, SlotList, Explanation,
    Stats, Series, DueLoad,
    QueueChange, QueuePage, QueueView,
    BulkRequest, BulkPreview, BulkJob, BulkPage,
    RegionList, Handover, HandoverAnswer,
)  # fmt: skip

_DESCRIBED = {
    400: "Not JSON", 401: "No known token", 403: "The token's role does not allow it",
    404: "Not found", 408: "The body did not arrive in time", 409: "Conflict with the state",
    412: "If-Match failed", 413: "Too large", 421: "Not this region",
    415: "Not application/json", 422: "A field is wrong",
    429: "Too many requests with this token, or wrong tokens from this address; see Retry-After",
    503: "PostgreSQL or Redis does not answer; Retry-After says when to try again",
}  # fmt: skip
_TEXT = {"type": "string"}


class OpenApiHandlers:
    """Serves openapi.json."""

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/openapi.json", self.get, allow_head=False)]

    async def get(self, _: web.Request) -> web.Response:
        """The description."""
        return web.Response(body=msgspec.json.encode(document()), content_type="application/json")


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    schemas["Problem"] = _problem_schema()
    return {
        "openapi": "3.1.0",
        "info": {"title": "Duly", "version": version("duly"),
                 "description": "Every task, duly, once."},
        "security": [{"token": []}, {"session": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": cookies.NAME},
            },
        },
    }  # fmt: skip


def _paths() -> dict[str, Any]:
    queue = [parameter("queue", "path")]
    one, page = [parameter("id", "path")], [parameter("limit"), parameter("cursor")]
    filters = [parameter(name) for name in TASK_FILTER]
    noted = [parameter(n) for n in ("who", "action", "task_id", "before", "since")]
    names = ("since", "until", "type", "queue", "verdict", "reason")
    ledger = [parameter(n) for n in names]
    batch = {
        "type": "object", "required": ["tasks"], "additionalProperties": False,
        "properties": {"tasks": {"type": "array", "items": _ref("TaskSubmission")}},
    }  # fmt: skip
    key, match = [parameter("Idempotency-Key", "header")], [parameter("If-Match", "header")]
    task, body_errors = _ref("TaskView"), (400, 408, 413, 415, 422)
    started = {"type": "object"}
    paths: dict[str, Any] = {
        "/v1/tasks": {
            "post": _operation("Submit a task", {201: task, 200: task, 202: task}, (*body_errors, 409),
                               body=_ref("TaskSubmission"), parameters=key),
            "get": _operation("List tasks, newest first", {200: _ref("TaskPage")}, (422,),
                              parameters=filters + page),
        },
        "/v1/tasks/batch": {
            "post": _operation("Submit many tasks, all or none", {201: _ref("BatchAnswer")},
                               (*body_errors, 409), body=batch),
        },
        "/v1/forwarded": {
            "post": _operation("Take in what another region hands on", {200: _ref("HandoverAnswer")},
                               (*body_errors, 421), body=_ref("Handover"))},
        "/v1/regions": {
            "get": _operation("The regions, and what waits here for them",
                              {200: _ref("RegionList")}, (422,))},
        "/v1/regions/{region}/outbox": {
            "get": _operation("What waits here for a region, or was refused by it",
                              {200: _ref("TaskPage")}, (422,),
                              parameters=[parameter("region", "path"), parameter("state"), *page])},
        "/v1/tasks/{id}": {
            "get": _operation("One task", {200: task}, (404, 422), parameters=one),
            "patch": _operation("Change a pending task", {200: task},
                                (*body_errors, 404, 409, 412), body=_ref("TaskPatch"),
                                parameters=one + match),
        },
        "/v1/names/{name}": {
            "get": _operation("The unfinished task that has a name", {200: task}, (404, 422),
                              parameters=[parameter("name", "path")])},
        "/v1/tasks/{id}/cancel": {
            "post": _operation("Cancel a task", {200: task}, (404, 409, 422), parameters=one)},
        "/v1/tasks/{id}/retry": {
            "post": _operation("Retry a failed task", {200: task}, (404, 409, 422),
                               parameters=one)},
        "/v1/tasks/{id}/pause": {
            "post": _operation("No more claims of a task", {200: task}, (404, 409, 422),
                               parameters=one)},
        "/v1/tasks/{id}/resume": {
            "post": _operation("End the pause of a task", {200: task}, (404, 409, 422),
                               parameters=one)},
        "/v1/tasks/{id}/run-now": {
            "post": _operation("Make a pending task due now", {200: task}, (404, 409, 422),
                               parameters=one)},
        "/v1/tasks/{id}/runs": {
            "get": _operation("The runs of a task, newest first", {200: _ref("RunPage")},
                              (404, 422), parameters=one + page)},
        "/v1/tasks/{id}/waiting": {
            "get": _operation("The tasks that wait for a task, newest first", {200: _ref("TaskPage")},
                              (404, 422), parameters=one + page)},
        "/v1/tasks/{id}/explain": {
            "get": _operation("Why a task has not run", {200: _ref("Explanation")}, (404, 422),
                              parameters=one)},
        "/v1/tasks/{id}/ledger": {
            "get": _operation("What became of each occurrence of a task, newest first",
                              {200: _ref("LedgerPage")}, (404, 422), parameters=one + page)},
        "/v1/ledger": {
            "get": _operation("What became of occurrences, newest first", {200: _ref("EntryPage")},
                              (422,), parameters=ledger + page)},
        "/v1/tasks/{id}/start": {
            "post": _operation("Grant a token its one start", {200: started},
                               (*body_errors, 409), body=_ref("StartBody"), parameters=one)},
        "/v1/tasks/{id}/report": {
            "post": _operation("Report an outcome", {200: started}, (*body_errors, 409),
                               body=_ref("ReportBody"), parameters=one)},
        "/v1/reports": {
            "post": _operation("Report many outcomes", {200: _ref("ReportAnswer")}, body_errors,
                               body=_ref("ReportBatch"))},
        "/v1/schedules/preview": {
            "get": _operation("The next fire times of a schedule", {200: _ref("SchedulePreview")},
                              (422,), parameters=[parameter(name) for name in PARAMETERS])},
        "/v1/bulk": {
            "post": _operation("Act on all tasks that a filter finds, or tell how many they are",
                               {200: _ref("BulkPreview"), 202: _ref("BulkJob")}, body_errors,
                               body=_ref("BulkRequest")),
            "get": _operation("Bulk jobs, newest first", {200: _ref("BulkPage")}, (422,),
                              parameters=page)},
        "/v1/bulk/{id}": {
            "get": _operation("One bulk job", {200: _ref("BulkJob")}, (404, 422), parameters=one)},
        "/v1/bulk/{id}/stop": {
            "post": _operation("Stop a bulk job", {200: _ref("BulkJob")}, (404, 409, 422),
                               parameters=one)},
        "/v1/load": {
            "get": _operation("Tasks due in each minute", {200: _ref("DueLoad")}, (422,),
                              parameters=[parameter("by"), parameter("hours")])},
        "/v1/audit": {
            "get": _operation("Who changed what, newest first", {200: _ref("AuditPage")}, (422,),
                              parameters=noted + page)},
        "/v1/stats": {"get": _operation("What the cluster has done of late", {200: _ref("Stats")},
                                        (422,))},
        "/v1/stats/series": {"get": _operation("The last hour by minute", {200: _ref("Series")},
                                               (422,), parameters=[parameter("minutes")])},
        "/v1/alerts": {
            "get": _operation("What went silent or was paused after failures, newest first",
                              {200: _ref("AlertPage")}, (422,),
                              parameters=[parameter("open"), parameter("task_id"), *page])},
        "/v1/queues": {
            "get": _operation("The queues, by name", {200: _ref("QueuePage")}, (422,),
                              parameters=[parameter("contains"), *page])},
        "/v1/queues/{queue}": {
            "get": _operation("One queue", {200: _ref("QueueView")}, (422,), parameters=queue),
            "put": _operation("Pause, resume or limit a queue", {200: _ref("QueueView")},
                              body_errors, body=_ref("QueueChange"), parameters=queue)},
        "/v1/nodes": {"get": _operation("The live nodes", {200: _ref("NodeList")}, (422,))},
        "/v1/session": {
            "get": _operation("Who is asking", {200: _ref("SessionView")}, ()),
            "post": _operation("Sign in: a cookie for a token", {200: _ref("SessionView")},
                               body_errors, body=_ref("SignIn")),
            "delete": _operation("Sign out: takes the cookie away", {204: None}, ())},
        "/v1/workers": {"get": _operation("The live workers", {200: _ref("WorkerList")}, (422,))},
        "/v1/events": {"get": _as_events(_operation(
            "What happens to tasks, as it happens", {200: _TEXT}, (422,),
            parameters=[parameter(name) for name in EVENT_FILTERS]))},
        "/v1/slots": {"get": _operation("Who owns the slots", {200: _ref("SlotList")}, (422,))},
        "/healthz": {"get": _open("Is the process alive", {200: started})},
        "/readyz": {"get": _open("Does every part work", {200: _ref("Readiness"),
                                                          503: _ref("Readiness")})},
        "/metrics": {"get": _as_text(_operation("What Prometheus reads", {200: _TEXT}, ()))},
        "/admin": {"get": _page("The admin page")},
        "/admin/{view}": {"get": _page("The admin page, at one of its views", "view")},
        "/admin/static/{file}": {"get": _page("A file of the admin page", "file")},
        "/openapi.json": {"get": _operation("This document", {200: started}, ())},
    }  # fmt: skip
    for method, path in PROXIED:
        operation = paths[path][method.lower()]
        operation["parameters"] = [*operation["parameters"], parameter("region")]
    return paths


def _operation(
    summary: str,
    answers: dict[int, dict[str, Any] | None],
    errors: tuple[int, ...],
    *,
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": "OK" if status < 300 else _DESCRIBED[status],
                      **({"content": {"application/json": {"schema": schema}}} if schema else {})}
        for status, schema in answers.items()
    }  # fmt: skip
    if any(one["in"] == "path" for one in parameters or ()):
        errors = (*errors, 404)  # also of a name that is none, as one with a line break
    for status in sorted({*errors, 401, 403, 429, 503} - set(answers)):
        responses[str(status)] = {
            "description": _DESCRIBED[status],
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {
            "required": True, "content": {"application/json": {"schema": body}}
        }  # fmt: skip
    return operation


def _open(summary: str, answers: dict[int, dict[str, Any] | None]) -> dict[str, Any]:
    """An operation that asks for no token."""
    operation = _operation(summary, answers, ())
    kept = {str(status): operation["responses"][str(status)] for status in answers}
    return {**operation, "security": [], "responses": kept}


def _as_events(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation whose answer goes on, one event after another."""
    operation["responses"]["200"]["content"] = {"text/event-stream": {"schema": _TEXT}}
    return operation


def _page(summary: str, name: str | None = None) -> dict[str, Any]:
    """A file for browsers, open to everybody."""
    kinds = ("text/html",) if name != "file" else ("text/css", "text/javascript", "image/svg+xml")
    found = {"description": "OK", "content": {kind: {"schema": _TEXT} for kind in kinds}}
    operation: dict[str, Any] = {"summary": summary, "security": [], "responses": {"200": found}}
    if name is not None:
        operation["parameters"] = [parameter(name, "path")]
        operation["responses"]["404"] = {
            "description": _DESCRIBED[404],
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
    return operation


def _as_text(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation whose answer is no JSON."""
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    return operation


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _problem_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "An error (RFC 9457)",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"}, "title": {"type": "string"},
            "status": {"type": "integer"}, "detail": {"type": "string"},
            "errors": {"type": "array", "items": _ref("FieldError")},
        },
    }  # fmt: skip
