"""One attempt in a slot, and what it comes to when it is told to stop."""

import asyncio
import time
from typing import Any, Final

from duly.nodes.worker import outcomes
from duly.nodes.worker.context import Context
from duly.nodes.worker.handlers import Handler
from duly.nodes.worker.outcomes import Outcome
from duly.nodes.worker.starts import Verdict
from duly.storage.conveyor import Entry

GIVE_BACK_DELAY_S: Final = 5.0
"""When a task that this worker cannot run should come again."""

CANCELLED: Final = "cancelled"
TIMED_OUT: Final = "timed_out"
STOPPED: Final = "worker_stopped"


class Run:
    """One attempt that occupies a slot: a record, kept by the runner."""

    __slots__ = (
        "began", "ctx", "entry", "finished_ms", "handler", "outcome", "reason", "repeats",
        "settled", "span", "started_ms", "task", "timer",
    )  # fmt: skip

    def __init__(self, entry: Entry, ctx: Context, handler: Handler, started_ms: float) -> None:
        self.entry = entry
        self.ctx = ctx
        self.handler = handler
        self.started_ms = started_ms
        self.finished_ms = started_ms
        self.began = False
        self.settled = False
        self.reason: str | None = None
        """Why it was told to stop, if it was."""
        self.outcome: Outcome | None = None
        self.repeats: list[Entry] = []
        """Further copies of the entry that came in meanwhile; given back with the first."""
        self.task: asyncio.Task[Outcome] | asyncio.Task[Verdict] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.span: Any = None
        """Of OpenTelemetry, if that is installed."""

    def why(self) -> Outcome | None:
        """Return the outcome of an attempt that was told to stop; None: it is not reported."""
        if self.reason == CANCELLED:
            return None
        if not self.began:
            return outcomes.snoozed(0.0 if self.reason == STOPPED else GIVE_BACK_DELAY_S)
        if self.reason == TIMED_OUT:
            text = f"no result within {self.entry.timeout_s:g} s"
            return outcomes.failure(TIMED_OUT, text, retry=True)
        if not self.entry.confirm:
            return outcomes.snoozed(0.0)  # the task is not to blame: no retry is used up
        return outcomes.failure(STOPPED, "the worker was stopped meanwhile", retry=True)


def now_ms() -> float:
    """Return the wall clock's time in milliseconds since the epoch."""
    return time.time() * 1000
