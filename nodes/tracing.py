"""Sends the spans of this process to a collector, if the environment names one (OTLP over HTTP)."""

import logging
import os
from importlib import import_module

from duly.storage import trace_context

log = logging.getLogger("duly.tracing")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def configure(service: str) -> None:
    """Set OpenTelemetry up as `service`, unless the program has done so itself.

    The variables of its SDK (OTEL_…) say where to and how much.
    """
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        processors = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        log.warning("traces are not sent: %s; install duly[otel]", error)
        return
    api = trace_context.api()
    if not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": name}))
    provider.add_span_processor(processors.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    api.set_tracer_provider(provider)
