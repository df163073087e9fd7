"""Spans in memory, without setting OpenTelemetry up for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from duly.storage import trace_context


class Spans:
    """What was traced."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("test")

    @property
    def all(self) -> list[ReadableSpan]:
        """Those that have ended, in the order in which they did."""
        return list(self._kept.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Those with this name."""
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one with this name."""
        (span,) = self.named(name)
        return span


def context_of(span: ReadableSpan) -> tuple[int, int]:
    """(trace id, span id)."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    """(trace id, span id) of the span above."""
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


@contextmanager
def tracing() -> Iterator[Spans]:
    """Duly traces into this."""
    spans = Spans()
    with (
        patch.object(trace_context, "tracer", lambda: spans.tracer),
        patch.object(trace_context, "records", lambda: True),
    ):
        yield spans
