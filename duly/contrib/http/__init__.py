"""HTTP targets: tasks of type `http` are requests, which this worker sends.

    DULY_REDIS_URL=redis://localhost:6379/0 duly worker duly.contrib.http

An own worker has the handler only if it registers it:

    from duly.contrib import http

    worker.task("http")(http.handler())

Whoever may submit tasks of that type sends requests from the worker's machine. Therefore only public
addresses are connected to, unless the settings (`DULY_HTTP_*`) name others. docs/http-targets.md
tells of payload, result, failures, signatures and settings.

    payload     ─▶ exchange (each hop: places, hosts) ─▶ connection (addresses, resolver)
    result, error ◀─ verdict ◀─ answer
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from duly.contrib.http import signature
from duly.contrib.http.connection import Way
from duly.contrib.http.errors import (
    ConnectionFailedError,
    DeadlineError,
    RefusedError,
    TryAgainError,
    UnexpectedStatusError,
)
from duly.contrib.http.exchange import Message, exchange
from duly.contrib.http.payload import Request
from duly.contrib.http.places import Place
from duly.contrib.http.resolver import Resolver
from duly.contrib.http.settings import Settings, load
from duly.contrib.http.verdict import judge
from duly.nodes.settings import SettingsError
from duly.nodes.worker import Context, Fail, Worker

__all__ = [
    "ConnectionFailedError",
    "DeadlineError",
    "RefusedError",
    "Request",
    "Settings",
    "TryAgainError",
    "UnexpectedStatusError",
    "handler",
    "load",
    "worker",
]

TYPE: Final = "http"
"""The type of the tasks."""


def handler(
    settings: Settings | None = None,
) -> Callable[[Context, Request], Coroutine[Any, Any, dict[str, Any]]]:
    """Return a handler that sends requests; `settings`: by default those of the environment.

    The result is `{"status", "headers", "body", "truncated", "redirects"}`. Raises SettingsError
    for a wrong setting.
    """
    known = load(os.environ) if settings is None else settings
    way = Way(Resolver(), _tls(known.ca_file), known.allow_networks)

    async def http(ctx: Context, payload: Request) -> dict[str, Any]:
        if payload.deadline > known.deadline_max_s:
            raise Fail(f"deadline: this worker allows at most {known.deadline_max_s:g} s")
        try:
            async with asyncio.timeout(payload.deadline):
                answer, redirects = await exchange(
                    way,
                    Place.of(payload.url),
                    _message(ctx, payload, known.secrets),
                    is_expected=payload.is_expected,
                    redirects=payload.redirects,
                    hosts=known.allow_hosts,
                    keep_bytes=known.body_bytes,
                )
        except TimeoutError:
            host = Place.of(payload.url).host
            raise DeadlineError(
                f"{host} had not answered in full after {payload.deadline:g} s"
            ) from None
        return judge(
            payload,
            answer,
            redirects,
            now_s=time.time(),
            retry_after_max_s=known.retry_after_max_s,
        )

    return http


def _message(ctx: Context, payload: Request, secrets: tuple[str, ...]) -> Message:
    own = ctx.headers()
    key = own["Idempotency-Key"]
    if ctx.traceparent is not None:
        own["traceparent"] = ctx.traceparent
    headers = {"User-Agent": f"duly/{version('duly')}", "Accept-Encoding": "identity"}
    if payload.content_type is not None:
        headers["Content-Type"] = payload.content_type
    given = {name.lower() for name in payload.headers}
    kept = {name: value for name, value in headers.items() if name.lower() not in given}
    sign = partial(_sign, secrets, key) if secrets else None
    return Message(payload.method, payload.content, kept | payload.headers, own, sign)


def _sign(secrets: tuple[str, ...], key: str, body: bytes) -> str:
    return signature.sign(secrets, key, body, int(time.time()))


def _tls(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # ssl.SSLError too
            raise SettingsError(
                "DULY_HTTP_CA_FILE", "the environment", ca_file, f"cannot be read: {error}"
            ) from None
    return context


def _make_worker() -> Worker:
    settings = load(os.environ)
    redis_url = os.environ["DULY_REDIS_URL"]
    try:
        made = Worker(
            redis_url,
            settings.queues,
            settings.concurrency,
            api=os.environ.get("DULY_URL") or None,
            token=os.environ.get("DULY_TOKEN") or None,
        )
    except ValueError as error:
        raise SettingsError(
            "DULY_REDIS_URL, DULY_URL", "the environment", "***", str(error)
        ) from None
    made.task(TYPE)(handler(settings))
    return made


def __getattr__(name: str) -> Worker:
    """`worker`, made at its first use: whoever wants the handler only has no settings for it."""
    if name != "worker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _make_worker()
    globals()["worker"] = made
    return made
