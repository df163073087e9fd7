"""A span around each submission, if OpenTelemetry is installed: the first part of its tasks' trace."""

from collections.abc import Iterator
from contextlib import contextmanager

from duly.storage import trace_context


@contextmanager
def submitting(what: str) -> Iterator[dict[str, str]]:
    """Around a submission of `what`: the headers that it needs."""
    api = trace_context.api()
    if api is None:
        yield {}
        return
    spans = trace_context.tracer()
    with spans.start_as_current_span(f"submit {what}", kind=api.SpanKind.PRODUCER) as span:
        traceparent = trace_context.traceparent_of(span)
        yield {} if traceparent is None else {"traceparent": traceparent}
