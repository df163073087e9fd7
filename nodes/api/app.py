"""The application: routes, and what happens around every request."""

import logging
from collections.abc import Sequence

import asyncpg
from aiohttp import web
from aiohttp.typedefs import Handler

from duly.actors.context import Context
from duly.actors.runtime import ActorCrashedError, MailboxClosedError
from duly.nodes.api.access import Access, check_routes
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

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""On every answer, for browsers that were led here; one that has a policy of its own has all its own."""


def build_app(
    contexts: Sequence[Context], settings: Settings, door: Door, regions: Regions
) -> web.Application:
    """The whole API of a node; `door` is where its connections come in. `contexts`: of each store."""
    context = contexts[0]
    rate, burst = settings.token_rate, settings.token_burst
    access = Access(settings.tokens, rate, burst, context.clock, context.api_db)
    payload_limit = settings.payload_limit_bytes
    outbox = Forwarding(context, regions, payload_limit)
    around = [door.middleware, _problems, access.middleware]
    if regions.known:
        around.append(RegionProxy(context, regions, outbox, payload_limit).middleware)
    app = web.Application(middlewares=around)
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
    check_routes(app)
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
        answer.headers.extend(_HEADERS)


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is a problem; what was not foreseen is logged and says nothing to outsiders."""
    try:
        return await handler(request)
    except Problem as problem:
        return problem.response()
    except StoreUnavailableError as error:
        return unavailable(str(error)).response()
    except (ActorCrashedError, MailboxClosedError):
        return unavailable("a part of the node starts anew, or it is stopping").response()
    except asyncpg.UndefinedTableError:
        return unavailable("the database has no schema yet: run duly migrate").response()
    except web.HTTPException as error:
        if error.status < 400:
            raise
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        detail = f"{request.method} {request.path}: {error.reason}"
        return Problem(error.status, error.reason, detail, headers=headers).response()
    except ConnectionError:
        raise  # the client is gone
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return Problem(500, "Internal error", "see the node's log").response()
