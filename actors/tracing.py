"""Spans of a node: from a task's due time to its publication, for tasks that came with a trace."""

from collections.abc import Sequence
from typing import Any

from duly.actors.trail import fields
from duly.storage import trace_context
from duly.storage.claims import Claimed
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us


class Fires:
    """The spans of one batch, which is about to be published."""

    def __init__(self, tasks: list[Claimed], rows: Sequence[DueRow], node: str) -> None:
        """`rows` tell when each task was due."""
        self.tasks = tasks
        """The same tasks, with the trace as their workers should continue it."""
        self._spans: list[Any] = []
        if not any(task.traceparent for task in tasks) or trace_context.api() is None:
            return
        pairs = zip(tasks, rows, strict=True)
        self.tasks = [
            self._begun(task, row, node) if task.traceparent else task for task, row in pairs
        ]

    def published(self, at_us: int) -> None:
        """They are in the stream, since this instant of the cluster's clock."""
        for span in self._spans:
            span.end(end_time=at_us * 1000)

    def _begun(self, task: Claimed, row: DueRow, node: str) -> Claimed:
        about = fields(task.id, task.token)
        span = trace_context.tracer().start_span(
            f"fire {task.type}",
            trace_context.context_of(task.traceparent),
            kind=trace_context.api().SpanKind.PRODUCER,
            start_time=to_us(row.next_run_at) * 1000,
            attributes={
                **{f"duly.{name}": value for name, value in about.items()},
                "duly.type": task.type,
                "duly.queue": task.queue,
                "duly.node": node,
            },
        )
        self._spans.append(span)
        return task._replace(traceparent=trace_context.traceparent_of(span))
