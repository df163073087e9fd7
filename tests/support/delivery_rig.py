"""Deliver HTTP requests as the worker for HTTP targets does, without a worker."""

import time
from ipaddress import ip_network
from typing import Any

from duly.contrib import http
from duly.nodes.worker import Context

SECRET = "0123456789abcdef0123456789abcdef"
LOOPBACK = (ip_network("127.0.0.1/32"),)


def a_context(attempt: int = 2, token: int = 42) -> Context:
    """An attempt of a task."""
    return Context(
        id="id1",
        type="http",
        queue="q",
        token=token,
        attempt=attempt,
        due_us=1_790_000_000_000_000,
        deadline=time.monotonic() + 600,
        worker="w",
    )


async def deliver(
    url: str,
    *,
    settings: http.Settings | None = None,
    context: Context | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Send one request; 127.0.0.1 is allowed unless `settings` are given."""
    known = settings or http.Settings(allow_networks=LOOPBACK)
    return await http.handler(known)(context or a_context(), http.Request(url=url, **fields))
