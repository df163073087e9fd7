"""Runs attempts: one slot each, from the start until the handler has really ended.

An attempt is *settled* once, when its outcome is handed to the reporter, and *released* when its
handler has ended. For a coroutine the two coincide, unless it goes on in spite of being cancelled;
a thread cannot be stopped, so its outcome is reported at the deadline and its slot stays taken
until it returns.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from duly.nodes import logs
from duly.nodes.codec import Codec, CodecError
from duly.nodes.codec import task as encoded
from duly.nodes.worker import outcomes, tracing
from duly.nodes.worker.calling import Calls, Middleware
from duly.nodes.worker.context import Context
from duly.nodes.worker.giving_back import GivingBack
from duly.nodes.worker.handlers import Handlers
from duly.nodes.worker.outcomes import Outcome
from duly.nodes.worker.run import CANCELLED, GIVE_BACK_DELAY_S, STOPPED, TIMED_OUT, Run, now_ms
from duly.nodes.worker.starts import Starts, Verdict
from duly.nodes.worker.threads import Threads
from duly.nodes.worker.waiting import wait_for
from duly.storage.conveyor import Entry

log = logging.getLogger("duly.worker")

CANCEL_GRACE_S = 1.0
"""A cancelled handler has this long to tidy up before its outcome is reported without it."""

PROGRESS_MAX = 1000
"""Of at most so many attempts it is told how far they are."""

TIMEOUT_S_MAX = 10 * 366 * 86_400.0
"""Longest timer that is set: ten years."""


class Reports(Protocol):
    """Where outcomes go."""

    def report(self, entry: Entry, outcome: Outcome, started_ms: float, finished_ms: float) -> None:
        """Report the outcome of `entry` and give the entry back. Times: ms since the epoch."""

    def drop(self, queue: str, entry_id: bytes) -> None:
        """Give an entry back without a report: nobody waits for its outcome."""


class Runner:
    """The slots of one worker and what runs in them."""

    def __init__(
        self,
        worker_id: str,
        concurrency: int,
        handlers: Handlers,
        reporter: Reports,
        starts: Starts,
        on_room: Callable[[], None],
        processes: int = 1,
        middleware: list[Middleware] | None = None,
        clock_ms: Callable[[], float] = now_ms,
        codec: Codec | None = None,
    ) -> None:
        """`on_room` is called whenever a slot becomes free. `clock_ms`: milliseconds since the epoch."""
        self._worker_id = worker_id
        self._concurrency = concurrency
        self._handlers = handlers
        self._reporter = reporter
        self._starts = starts
        self._on_room = on_room
        self._now_ms = clock_ms
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._threads = Threads("duly-handler")
        self._calls = Calls(self._threads, processes, middleware or [])
        self.state: Any = None
        """What the lifespan yielded."""
        self._runs: dict[tuple[str, int], Run] = {}
        self._expected: dict[tuple[str, int], bool] = {}
        self._giving_back = GivingBack(handlers, reporter.report, clock_ms)
        self._changed = asyncio.Event()
        self._closed = False
        self._hurried = False

    @property
    def free(self) -> int:
        """Slots without an attempt."""
        return self._concurrency - len(self._runs)

    @property
    def running(self) -> int:
        """Slots with an attempt."""
        return len(self._runs)

    def entries(self) -> set[tuple[str, bytes]]:
        """Return (queue, entry id) of everything in the slots."""
        return {
            (entry.queue, entry.entry_id)
            for run in self._runs.values()
            for entry in (run.entry, *run.repeats)
        }

    def signs(self) -> dict[str, Any]:
        """What the worker tells of itself beside the number of its attempts: nothing, most of the time."""
        made = [
            {"id": run.entry.id, "token": run.entry.token, "share": told.share, "text": told.text}
            for run in list(self._runs.values())
            if (told := run.ctx.progress_made) is not None
        ]
        signs = self._giving_back.signs()
        if made:
            signs["progress"] = made[:PROGRESS_MAX]
        return signs

    # Into a slot

    def expect(self, entries: Iterable[Entry]) -> None:
        """Remember cancellations of these entries until they are started or expected no more."""
        self._expected = {(entry.id, entry.token): False for entry in entries}

    def start(self, entry: Entry) -> None:
        """Run `entry`, whose token has been checked; what cannot run here is given back."""
        key = (entry.id, entry.token)
        run = self._runs.get(key)
        if run is not None:
            self._repeated(run, entry)
            return
        if self._expected.get(key, False):
            self._reporter.drop(entry.queue, entry.entry_id)
            return
        if self._closed or self.free <= 0:
            self._giving_back.crowded(entry)
            return
        handler = self._handlers.get(entry.type)
        if handler is None:
            self._giving_back.unknown(entry)
            return
        if not encoded.is_readable(self._codec, entry):
            try:
                entry = encoded.opened(self._codec, entry)
            except CodecError as error:
                self._giving_back.unread(entry, error)
                return
        timeout_s = min(entry.timeout_s, TIMEOUT_S_MAX)
        ctx = Context(
            id=entry.id,
            type=entry.type,
            queue=entry.queue,
            token=entry.token,
            attempt=entry.attempt,
            due_us=entry.due_us,
            deadline=time.monotonic() + timeout_s,
            worker=self._worker_id,
            state=self.state,
            parent=entry.parent,
            codec=self._codec,
        )
        self._runs[key] = run = Run(entry, ctx, handler, self._now_ms())
        run.timer = self._loop.call_later(timeout_s, self._stop, run, TIMED_OUT)
        if entry.confirm:
            question = self._loop.create_task(self._starts.confirm(entry))
            question.add_done_callback(partial(self._answered, run))
            run.task = question
        else:
            self._begin(run)

    def _begin(self, run: Run) -> None:
        run.began = True
        run.started_ms = self._now_ms()
        payload = run.entry.payload
        context = copy_context()  # of the handler alone: what it logs is about its task
        context.run(logs.about.set, self._fields(run))
        run.span = tracing.begin(run.entry, context)
        run.ctx.traceparent = tracing.traceparent(run.entry, run.span)
        if run.handler.place != "thread" or self._calls.wraps:
            running = run.handler.run(run.ctx, payload, self._calls)
            task = self._loop.create_task(running, context=context)
            task.add_done_callback(partial(self._ended, run))
            run.task = task
        else:
            run.task = None
            work = partial(run.handler.run_blocking, run.ctx, payload)
            context.run(self._threads.call, work, partial(self._returned, run))

    def _fields(self, run: Run) -> dict[str, object]:
        """What a log line about this attempt carries."""
        entry = run.entry
        return {
            "task_id": entry.id, "token": entry.token, "queue": entry.queue,
            "worker": self._worker_id,
        }  # fmt: skip

    def _repeated(self, run: Run, entry: Entry) -> None:
        """Keep a second copy pending while the first runs: it shows that the task is held here."""
        if run.settled:
            self._hand_in(run, entry)
        elif entry.entry_id not in {run.entry.entry_id, *(e.entry_id for e in run.repeats)}:
            run.repeats.append(entry)

    # Out of a slot

    def _answered(self, run: Run, question: asyncio.Task[Verdict]) -> None:
        verdict = Verdict.UNANSWERED
        if not question.cancelled():
            error = question.exception()
            if error is None:
                verdict = question.result()
            else:
                log.error("asking for a start failed", exc_info=error, extra=self._fields(run))
        if verdict is Verdict.GRANTED and run.reason is None:
            self._begin(run)
            return
        self._settle(run, run.why() if run.reason else _not_begun(verdict))
        self._release(run)

    def _ended(self, run: Run, task: asyncio.Task[Outcome]) -> None:
        if run.reason is not None:
            outcome = run.why()
        elif task.cancelled():
            outcome = outcomes.failure("CancelledError", "the handler cancelled itself", retry=True)
        elif (error := task.exception()) is not None:
            outcome = outcomes.raised(error, self._codec)
        else:
            outcome = task.result()
        self._settle(run, outcome)
        self._release(run)

    def _returned(self, run: Run, outcome: Outcome) -> None:
        self._settle(run, outcome)
        self._release(run)

    def _settle(self, run: Run, outcome: Outcome | None) -> None:
        """Hand in the outcome (None: nobody wants it); only the first one counts."""
        if run.settled:
            return
        run.settled = True
        run.outcome = None if outcome is outcomes.SUPERSEDED else outcome
        run.finished_ms = self._now_ms()
        tracing.end(run.span, run.outcome)
        if run.timer is not None:
            run.timer.cancel()
        self._hand_in(run, run.entry)
        for entry in run.repeats:
            self._reporter.drop(entry.queue, entry.entry_id)
        self._changed.set()

    def _hand_in(self, run: Run, entry: Entry) -> None:
        if run.outcome is None:
            self._reporter.drop(entry.queue, entry.entry_id)
        else:
            self._reporter.report(entry, run.outcome, run.started_ms, run.finished_ms)

    def _release(self, run: Run) -> None:
        del self._runs[run.entry.id, run.entry.token]
        self._changed.set()
        self._on_room()

    # Stopping

    def cancel(self, task_id: str, token: int) -> None:
        """Stop the attempt with this id and token, if it is here; its outcome is not reported."""
        key = (task_id, token)
        if key in self._expected:
            self._expected[key] = True
        run = self._runs.get(key)
        if run is not None:
            self._stop(run, CANCELLED)

    def abort(self) -> None:
        """Tell all that still runs to stop; nothing is awaited."""
        for run in self._unsettled():
            self._stop(run, STOPPED)
        self._threads.close()

    async def drain(self, timeout_s: float) -> None:
        """Let what runs end within `timeout_s`, then stop it; every attempt is settled after it.

        From now on `start` gives everything back.
        """
        self._closed = True
        for run in list(self._runs.values()):
            if not run.began:
                self._stop(run, STOPPED)
        await self._until(lambda: self._hurried or not self._unsettled(), timeout_s)
        for run in self._unsettled():
            self._stop(run, STOPPED)
        await self._until(lambda: not self._unsettled(), 2 * CANCEL_GRACE_S)
        self._threads.close()

    def hurry(self) -> None:
        """End the patience of `drain`."""
        self._hurried = True
        self._changed.set()

    def _unsettled(self) -> list[Run]:
        return [run for run in self._runs.values() if not run.settled]

    async def _until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done() and (left_s := deadline - time.monotonic()) > 0:
            self._changed.clear()
            await wait_for(self._changed, left_s)

    def _stop(self, run: Run, reason: str) -> None:
        """Tell an attempt to stop; the first reason counts."""
        if run.settled or run.reason is not None:
            return
        if run.began and run.task is not None and run.task.done():
            return  # it has ended already, and its callback is on the way
        run.reason = reason
        run.ctx.cancel()
        if run.task is None:
            self._settle(run, run.why())
        else:
            run.task.cancel()
            self._loop.call_later(CANCEL_GRACE_S, self._outlast, run)

    def _outlast(self, run: Run) -> None:
        if run.settled:
            return
        if run.handler.place == "loop":
            log.warning(
                "a handler of %s goes on although it was cancelled (%s)",
                run.entry.type,
                run.reason,
                extra=self._fields(run),
            )
        self._settle(run, run.why())


def _not_begun(verdict: Verdict) -> Outcome | None:
    return None if verdict is Verdict.REFUSED else outcomes.snoozed(GIVE_BACK_DELAY_S)
