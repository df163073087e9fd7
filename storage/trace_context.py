"""Traces (W3C Trace Context, https://www.w3.org/TR/trace-context/): the header, and OpenTelemetry's idea of it.

OpenTelemetry is an extra (`duly[otel]`). Without it there are no spans, and a `traceparent` is passed on as
it came.
"""

import re
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

_FIELDS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


def checked(text: str) -> str | None:
    """A `traceparent` as version 00 writes it; None for one that must not be continued.

    Of a later version what version 00 knows is taken, as the standard asks.
    """
    found = _FIELDS.fullmatch(text.strip(" \t"))
    if found is None:
        return None
    number, trace, parent, flags, rest = found.groups()
    if number == "ff" or (number == "00" and rest is not None):
        return None
    if set(trace) == {"0"} or set(parent) == {"0"}:
        return None
    return f"00-{trace}-{parent}-{flags}"


@cache
def api() -> Any:
    """OpenTelemetry's module `trace`, None without it. Unless an SDK is set up, its spans record nothing."""
    try:
        return import_module("opentelemetry.trace")
    except ImportError:
        return None


def records() -> bool:
    """Whether spans that belong to no trace yet are of use to anybody: there is an SDK."""
    opentelemetry = api()
    return opentelemetry is not None and not isinstance(
        opentelemetry.get_tracer_provider(), opentelemetry.ProxyTracerProvider
    )


@cache
def tracer() -> Any:
    """Makes Duly's spans, with whichever SDK is set up when it does. Only with `api()`."""
    return api().get_tracer("duly", version("duly"))


def context_of(traceparent: str | None) -> Any:
    """OpenTelemetry's context for it: nothing else is in it. Only with `api()`."""
    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return _propagator().extract(carrier, _nothing())


def traceparent_of(span: Any) -> str | None:
    """What names a span; None if it belongs to no trace. Only with `api()`."""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier, api().set_span_in_context(span, _nothing()))
    return carrier.get("traceparent")


@cache
def _propagator() -> Any:
    module = import_module("opentelemetry.trace.propagation.tracecontext")
    return module.TraceContextTextMapPropagator()


def _nothing() -> Any:
    return import_module("opentelemetry.context").Context()
