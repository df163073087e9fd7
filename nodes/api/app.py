"""The application: routes, and what happens around every request."""

import logging
from collections.abc import Sequence

import asyncpg
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from duly.actors.context import Context
from duly.actors.runtime import ActorCrashedError, MailboxClosedError
from duly.nodes.api import answers, route_roles
from duly.nodes.api.access import Access
from duly.nodes.api.admin import AdminHandlers
from duly.nodes.api.alerts import AlertHandlers
from duly.nodes.api.audits import AuditHandlers
from duly.nodes.api.bulk import BulkHandlers
from duly.nodes.api.cluster import ClusterHandlers
from duly.nodes.api.events import EventHandlers
from duly.nodes.api.explain import ExplainHandlers
from duly.nodes.api.forwarded import ForwardedHandlers
from duly.nodes.api.forwarding import Forwarding
from duly.nodes.api.health import HealthHandlers
from duly.nodes.api.ledger import LedgerHandlers
from duly.nodes.api.load import LoadHandlers
from duly.nodes.api.metrics import MetricsHandlers
from duly.nodes.api.nodes import NodeHandlers
from duly.nodes.api.openapi import OpenApiHandlers
from duly.nodes.api.outbox import OutboxHandlers
from duly.nodes.api.problems import Problem, unavailable
from duly.nodes.api.queues import QueueHandlers
from duly.nodes.api.region_proxy import RegionProxy
from duly.nodes.api.schedules import ScheduleHandlers
from duly.nodes.api.sessions import SessionHandlers
from duly.nodes.api.stats import StatsHandlers
from duly.nodes.api.stores.several import Several
from duly.nodes.api.submit import SubmitHandlers
from duly.nodes.api.task_counts import TaskCounts
from duly.nodes.api.tasks import TaskHandlers
from duly.nodes.api.workers import WorkerHandlers
from duly.nodes.connections import Door
from duly.nodes.regions.directory import Regions
from duly.nodes.settings import Settings
from duly.storage.errors import StoreUnavailableError

log = logging.getLogger("duly.api")


def build_app(
    contexts: Sequence[Context], settings: Settings, door: Door, regions: Regions
) -> web.Application:
    """The whole API of a node; `door` is where its connections come in. `contexts`: of each store."""
    context = contexts[0]
    rate, burst = settings.token_rate, settings.token_burst
    access = Access(settings.tokens, rate, burst, context.clock, context.api_db)
    payload_limit = settings.payload_limit_bytes
    outbox = Forwarding(context, regions, payload_limit)
    layers = [_around(door, access)]
    if regions.known:
        layers.append(RegionProxy(context, regions, outbox, payload_limit).middleware)
    app = web.Application(middlewares=layers)
    app.on_response_prepare.append(_set_headers)
    several = Several(contexts, outbox, settings) if len(contexts) > 1 else None
    health, counts = HealthHandlers(context), TaskCounts(context)
    if several is not None:
        health, counts = several.health, several.counts
    stats = StatsHandlers(context, counts)
    events = EventHandlers(context, stats.newest)
    app.on_shutdown.append(events.close)
    if several is not None:
        app.add_routes(several.routes())
    else:
        app.add_routes(_of_tasks(context, counts, settings, regions, outbox))
    for part in (
        ScheduleHandlers(context),
        NodeHandlers(context),
        events,
        SessionHandlers(context, access),
        health,
        MetricsHandlers(contexts, health, counts, regions),
        stats,
        OpenApiHandlers(),
        AdminHandlers(),
    ):
        app.add_routes(part.routes())
    route_roles.check_routes(app)
    return app


def _of_tasks(
    context: Context,
    counts: TaskCounts,
    settings: Settings,
    regions: Regions,
    outbox: Forwarding,
) -> list[web.RouteDef]:
    """What is about tasks; where there are several stores, `Several` has the same."""
    payload_limit = settings.payload_limit_bytes
    parts = (
        SubmitHandlers(context, outbox, payload_limit, settings.batch_limit),
        ForwardedHandlers(context, regions, payload_limit),
        OutboxHandlers(context, regions, outbox),
        TaskHandlers(context, payload_limit),
        WorkerHandlers(context),
        AuditHandlers(context),
        BulkHandlers(context),
        LoadHandlers(context),
        AlertHandlers(context),
        LedgerHandlers(context),
        ClusterHandlers(context),
        ExplainHandlers(context),
        QueueHandlers(context, counts),
    )
    return [route for part in parts for route in part.routes()]


async def _set_headers(_: web.Request, answer: web.StreamResponse) -> None:
    answer.headers["Server"] = "duly"  # not which versions of what
    if "Content-Security-Policy" not in answer.headers:
        answer.headers.extend(answers.HEADERS)


def _around(door: Door, access: Access) -> Middleware:
    """What goes around every handler. One layer: each costs every request."""

    @web.middleware
    async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            door.note(request)
            await access.check(request)
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - what is not a problem is raised again, or logged
            return _problem(request, error).response()

    return around


def _problem(request: web.Request, error: Exception) -> Problem:
    """Every error is a problem; what was not foreseen is logged and says nothing to outsiders."""
    match error:
        case Problem():
            return error
        case StoreUnavailableError():
            return unavailable(str(error))
        case ActorCrashedError() | MailboxClosedError():
            return unavailable("a part of the node starts anew, or it is stopping")
        case asyncpg.UndefinedTableError():
            return unavailable("the database has no schema yet: run duly migrate")
        case web.HTTPException(status=status) if status >= 400:
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            detail = f"{request.method} {request.path}: {error.reason}"
            return Problem(status, error.reason, detail, headers=headers)
        case web.HTTPException() | ConnectionError():  # no error; the client is gone
            raise error
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return Problem(500, "Internal error", "see the node's log")
