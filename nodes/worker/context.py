"""What a handler knows about the attempt that it runs."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from duly.nodes.codec import Codec
from duly.nodes.worker import completing
from duly.nodes.worker.effects import ExactlyOnce, Guard
from duly.nodes.worker.outcomes import Superseded
from duly.nodes.worker.parent import Parent, parse

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


PROGRESS_CHARS_MAX: Final = 200
"""Longest text of a progress."""


class Progress(NamedTuple):
    """How far an attempt is: the share that is done, 0 to 1, and what it is at."""

    share: float
    text: str | None


class Context:
    """One attempt of one task, as its handler sees it."""

    __slots__ = (
        "_due_us",
        "_guard",
        "_parent",
        "_stopped",
        "attempt",
        "cancelled",
        "codec",
        "deadline",
        "id",
        "progress_made",
        "queue",
        "state",
        "token",
        "traceparent",
        "type",
        "worker",
    )

    id: str
    """The task's id (a UUID in text form)."""
    type: str
    """The task's type, by which the handler was found."""
    queue: str
    """The queue that it came through."""
    token: int
    """The fencing token of this attempt: higher than that of every attempt before it."""
    attempt: int
    """1 for the first attempt of an occurrence, 2 for the first retry, and so on."""
    worker: str
    """Id of the worker that runs the handler."""
    progress_made: Progress | None
    """What `progress` was last called with."""
    state: Any
    """What the worker's lifespan yielded: pools, clients. None without one, and in a process."""
    codec: Codec | None
    """The worker's: what the attempt comes to is stored as it makes it."""
    deadline: float
    """When the attempt's time is up, on this machine's monotonic clock (`time.monotonic()`)."""
    traceparent: str | None
    """The trace that the attempt belongs to (W3C Trace Context), for calls to other services; None
    without one."""
    cancelled: bool
    """True once the work is no longer wanted: the task was cancelled or replaced, its time is up,
    or the worker stops. A plain function, which cannot be interrupted, looks here now and then."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - named as the attribute
        type: str,  # noqa: A002 - named as the attribute
        queue: str,
        token: int,
        attempt: int,
        due_us: int,
        deadline: float,
        worker: str,
        state: Any = None,
        parent: bytes | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Made by the worker. `due_us`: the due time in microseconds since the epoch."""
        self.id = id
        self.type = type
        self.queue = queue
        self.token = token
        self.attempt = attempt
        self.worker = worker
        self.state = state
        self.codec = codec
        self.progress_made = None
        self.deadline = deadline
        self.traceparent = None
        self.cancelled = False
        self._due_us = due_us
        self._parent = parent
        self._guard: Guard | None = None
        self._stopped: asyncio.Event | None = None

    @property
    def due(self) -> datetime:
        """When this occurrence was due (UTC): the same for each of its attempts."""
        return _EPOCH + timedelta(microseconds=self._due_us)

    @property
    def parent(self) -> Parent | None:
        """The task that this one follows (`on_success`, `on_failure`), with its result or error; else None."""
        return None if self._parent is None else parse(self._parent)

    @property
    def remaining_s(self) -> float:
        """Seconds left until the deadline; 0 when it has passed."""
        return max(0.0, self.deadline - time.monotonic())

    async def wait_cancelled(self) -> None:
        """Wait until `cancelled` is True; for async handlers that tidy up in a task of their own."""
        if self.cancelled:
            return
        if self._stopped is None:
            self._stopped = asyncio.Event()
        await self._stopped.wait()

    def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Tell how far the attempt is: shown with the task within some 3 seconds, and gone with the attempt.

        `done` of `total`, or without a total the share that is done, 0 to 1. `text`: at most 200 characters. From
        any thread, as often as you like; in a process of its own it is not seen. Raises ValueError for
        a share that is not from 0 to 1.
        """
        share = done / total if total else float(done)
        if not 0 <= share <= 1:
            raise ValueError(f"done is 0 to total, or 0 to 1 without it, not {done} of {total}")
        self.progress_made = Progress(share, text[:PROGRESS_CHARS_MAX] if text else None)

    def headers(self) -> dict[str, str]:
        """Return HTTP headers that let a called service recognise repeats and latecomers.

        `Idempotency-Key` is made of task and occurrence: the same for every attempt. At most 60
        characters, of those that any header may hold bare (RFC 9110, "token"). `Duly-Fencing-Token`
        grows with every attempt, so that a service may refuse one lower than it has seen.
        """
        return {
            "Idempotency-Key": f"{self.id}.{self._due_us}",
            "Duly-Fencing-Token": str(self.token),
        }

    def exactly_once(self, connection: object) -> ExactlyOnce:
        """Return a context manager: what its block does through `connection` is done once.

            async with ctx.exactly_once(connection) as effect:
                await connection.execute("update accounts set balance = balance - 10 …")
                effect.result = {"balance": 90}
            return effect.result

        `connection`: the user's own PostgreSQL, by asyncpg (also out of its pool) or psycopg 3; a
        blocking psycopg connection takes `with`. The block is a transaction; within one that is
        open already it is a savepoint, and the effect is committed, or not, with that one. The
        transaction also records task and occurrence in the table `duly_effects`, which is created
        if it is missing.

        Raises AlreadyDone if an attempt at this occurrence has committed its effect, Superseded if
        one with a higher token has committed one or this attempt was told to stop. A handler lets
        both pass: the attempt then is completed with the stored result, or ends without a report.
        Raises the driver's serialization error if, at an isolation level above READ COMMITTED,
        another attempt committed meanwhile: the next attempt finds its effect. Raises RuntimeError
        for a second block in one attempt, TypeError for another kind of connection.
        """
        self._refuse_if_cancelled()
        if self._guard is None:
            self._guard = Guard(self.id, self.due, self.token, self.codec)
        return ExactlyOnce(self._guard, connection)

    async def complete_in(self, connection: object, result: Any = None) -> None:
        """Complete this attempt within the open transaction of `connection`: effect and outcome are one commit.

            async with connection.transaction():
                await connection.execute("update accounts set balance = balance - 10 …")
                await ctx.complete_in(connection, {"balance": 90})

        If the transaction commits, the attempt has completed with `result` (JSON of at most 256 KiB), whatever the
        handler does, and whatever becomes of this process. If it does not, nothing has happened.
        `connection`: as of `duly.submit_in`, to the database in which Duly keeps its tasks. Its user needs the right to
        execute `duly.complete`.

        Raises Superseded if this attempt does not count any more, AlreadyDone if it has completed before; a handler
        lets both pass. The commit compares once more, and fails if the attempt was superseded meanwhile: let that
        error pass, too. Raises RuntimeError if no transaction is open, TypeError for another kind of connection, Fail
        if the result cannot be stored.
        """
        self._refuse_if_cancelled()
        await completing.complete(connection, self.id, self.token, result, self.worker, self.codec)

    def complete_in_sync(self, connection: object, result: Any = None) -> None:
        """`complete_in` for plain functions, and the connections of `duly.submit_in_sync`."""
        self._refuse_if_cancelled()
        completing.complete_sync(connection, self.id, self.token, result, self.worker, self.codec)

    def _refuse_if_cancelled(self) -> None:
        if self.cancelled:
            raise Superseded("the attempt was told to stop before it came to its effect")

    def cancel(self) -> None:
        """Set `cancelled`; called by the worker on its event loop."""
        self.cancelled = True
        if self._stopped is not None:
            self._stopped.set()

    def __reduce__(self) -> tuple[Any, ...]:
        """In a process of its own a handler has what tells of the attempt, and no more."""
        given = (self.id, self.type, self.queue, self.token, self.attempt, self._due_us)
        more = (self.deadline, self.worker, self.traceparent, self._parent, self.codec)
        return _remade, (*given, *more)

    def __repr__(self) -> str:
        return f"<Context {self.type} {self.id} attempt {self.attempt} token {self.token}>"


def _remade(
    id: str,  # noqa: A002 - named as the attribute
    type: str,  # noqa: A002 - named as the attribute
    queue: str,
    token: int,
    attempt: int,
    due_us: int,
    deadline: float,
    worker: str,
    traceparent: str | None,
    parent: bytes | None,
    codec: Codec | None,
) -> Context:
    made = Context(
        id=id, type=type, queue=queue, token=token, attempt=attempt, due_us=due_us,
        deadline=deadline, worker=worker, parent=parent, codec=codec,
    )  # fmt: skip
    made.traceparent = traceparent
    return made
