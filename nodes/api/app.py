"""The application: routes, and what happens around every request."""

import hashlib
import hmac
import logging
from collections.abc import Sequence

import asyncpg
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from duly.actors.context import Context
from duly.actors.runtime import ActorCrashedError, MailboxClosedError
from duly.nodes.api.health import HealthHandlers
from duly.nodes.api.metrics import MetricsHandlers
from duly.nodes.api.openapi import OpenApiHandlers
from duly.nodes.api.problems import Problem, unavailable
from duly.nodes.api.submit import SubmitHandlers
from duly.nodes.api.tasks import TaskHandlers
from duly.nodes.api.workers import WorkerHandlers
from duly.nodes.settings import Token
from duly.storage.errors import StoreUnavailableError

log = logging.getLogger("duly.api")

_OPEN = {"/healthz", "/readyz"}
_RANKS = {"read": 0, "submit": 1, "admin": 2}


def build_app(
    context: Context, *, payload_limit: int, batch_limit: int, tokens: Sequence[Token]
) -> web.Application:
    """The whole API of a node."""
    app = web.Application(middlewares=[_problems, _access(tokens)])
    health = HealthHandlers(context)
    for part in (
        SubmitHandlers(context, payload_limit, batch_limit),
        TaskHandlers(context, payload_limit),
        WorkerHandlers(context),
        health,
        MetricsHandlers(context, health),
        OpenApiHandlers(),
    ):
        app.add_routes(part.routes())
    return app


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


def _access(tokens: Sequence[Token]) -> Middleware:
    @web.middleware
    async def access(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not tokens or request.path in _OPEN:
            return await handler(request)
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        # Bytes that are not UTF-8 come as surrogates, and go back to what they were.
        secret_bytes = secret.strip().encode(errors="surrogateescape")
        digest = hashlib.sha256(secret_bytes).hexdigest()
        role = None
        for token in tokens:  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(digest, token.sha256) and scheme.lower() == "bearer":
                role = token.role
        if role is None:
            raise Problem(
                401, "Unauthorized", "send Authorization: Bearer with a known token",
                headers={"WWW-Authenticate": 'Bearer realm="duly"'},
            )  # fmt: skip
        needed = "read" if request.method in ("GET", "HEAD") else "submit"
        if _RANKS[role] < _RANKS[needed]:
            raise Problem(403, "Forbidden", f"this needs the role {needed}; the token has {role}")
        return await handler(request)

    return access
