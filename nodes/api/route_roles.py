"""One table says which role each route needs; a route that is not in it is not served."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from duly.nodes.settings import Role

ROUTES: Final[Mapping[tuple[str, str], Role | None]] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): "read",
    ("GET", "/openapi.json"): "read",
    ("GET", "/v1/tasks"): "read",
    ("GET", "/v1/tasks/{id}"): "read",
    ("GET", "/v1/names/{name}"): "read",
    ("GET", "/v1/tasks/{id}/runs"): "read",
    ("GET", "/v1/tasks/{id}/waiting"): "read",
    ("GET", "/v1/tasks/{id}/explain"): "read",
    ("GET", "/v1/load"): "read",
    ("GET", "/v1/tasks/{id}/ledger"): "read",
    ("GET", "/v1/ledger"): "read",
    ("GET", "/v1/nodes"): "read",
    ("GET", "/v1/workers"): "read",
    ("GET", "/v1/slots"): "read",
    ("GET", "/v1/alerts"): "read",
    ("GET", "/v1/events"): "read",
    ("GET", "/v1/queues"): "read",
    ("GET", "/v1/queues/{queue}"): "read",
    ("PUT", "/v1/queues/{queue}"): "admin",
    ("GET", "/v1/schedules/preview"): "read",
    ("GET", "/v1/stats"): "read",
    ("GET", "/v1/stats/series"): "read",
    ("POST", "/v1/tasks"): "submit",
    ("POST", "/v1/tasks/batch"): "submit",
    ("POST", "/v1/forwarded"): "submit",
    ("GET", "/v1/regions"): "read",
    ("GET", "/v1/regions/{region}/outbox"): "read",
    ("PATCH", "/v1/tasks/{id}"): "submit",
    ("POST", "/v1/tasks/{id}/cancel"): "submit",
    ("POST", "/v1/tasks/{id}/retry"): "submit",
    ("POST", "/v1/tasks/{id}/pause"): "submit",
    ("POST", "/v1/tasks/{id}/resume"): "submit",
    ("POST", "/v1/tasks/{id}/run-now"): "submit",
    ("POST", "/v1/tasks/{id}/start"): "submit",
    ("POST", "/v1/tasks/{id}/report"): "submit",
    ("POST", "/v1/reports"): "submit",
    ("GET", "/v1/audit"): "admin",
    ("POST", "/v1/bulk"): "admin",
    ("GET", "/v1/bulk"): "read",
    ("GET", "/v1/bulk/{id}"): "read",
    ("POST", "/v1/bulk/{id}/stop"): "admin",
    ("GET", "/admin"): None,
    ("GET", "/admin/static/{file}"): None,
    ("GET", "/admin/{view}"): None,
    ("GET", "/v1/session"): "read",
    ("POST", "/v1/session"): None,
    ("DELETE", "/v1/session"): "read",
}
"""The role that each route needs; None is open to everybody."""


def check_routes(app: web.Application) -> None:
    """Raise LookupError for a route that has no line in `ROUTES`."""
    for route in app.router.routes():
        if route.resource is None or (route.method, route.resource.canonical) not in ROUTES:
            raise LookupError(f"no role is set for {route}")


def needed(request: web.Request) -> Role | None:
    """The role that a request needs; None: it is open to everybody."""
    resource = request.match_info.route.resource
    if resource is None:  # no such path, or not with this method
        return "read"  # who has no token is not told which there are
    return ROUTES[request.method, resource.canonical]
