"""A span around each attempt, if OpenTelemetry is installed: the last part of its task's trace."""

from contextvars import Context as Variables
from importlib import import_module
from typing import Any

import msgspec

from duly.nodes.worker.outcomes import Outcome
from duly.storage import trace_context
from duly.storage.conveyor import Entry


class _Error(msgspec.Struct):
    type: str
    message: str = ""


_error = msgspec.json.Decoder(_Error)


def begin(entry: Entry, variables: Variables) -> Any:
    """Begin a span and make it the current one in `variables`; None without OpenTelemetry.

    A task without a trace begins one of its own, if there is an SDK that records it.
    """
    api = trace_context.api()
    if api is None or (entry.traceparent is None and not trace_context.records()):
        return None
    parent = trace_context.checked(entry.traceparent) if entry.traceparent else None
    span = trace_context.tracer().start_span(
        f"run {entry.type}",
        trace_context.context_of(parent),
        kind=api.SpanKind.CONSUMER,
        attributes={
            "duly.task_id": entry.id,
            "duly.token": entry.token,
            "duly.type": entry.type,
            "duly.queue": entry.queue,
            "duly.attempt": entry.attempt,
        },
    )
    attach = import_module("opentelemetry.context").attach
    variables.run(attach, api.set_span_in_context(span, trace_context.context_of(None)))
    return span


def traceparent(entry: Entry, span: Any) -> str | None:
    """What names the attempt to the services that it calls: its span, or else what it came with."""
    return entry.traceparent if span is None else trace_context.traceparent_of(span)


def end(span: Any, outcome: Outcome | None) -> None:
    """End it; `outcome` None: nobody wants one any more."""
    if span is None:
        return
    span.set_attribute("duly.outcome", "unwanted" if outcome is None else outcome.kind)
    if outcome is not None and outcome.kind == "failed" and outcome.body is not None:
        said = _error.decode(outcome.body)
        text = (
            f"{said.type}: {said.message}" if said.message else said.type
        )  # encrypted: no message
        span.set_status(trace_context.api().StatusCode.ERROR, text)
    span.end()
