"""`duly.Worker`: register handlers, then run."""

import asyncio
import contextlib
import inspect
import os
import re
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import anyio

from duly.nodes.codec import Codec
from duly.nodes.worker.blocking import run_until_done
from duly.nodes.worker.calling import Middleware
from duly.nodes.worker.handlers import Handlers
from duly.nodes.worker.session import Session, Settings
from duly.storage import keys
from duly.storage import redis_url as redis_urls

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
L = TypeVar("L", bound=Callable[[], AsyncIterator[Any]])

Lifespan = Callable[[], contextlib.AbstractAsyncContextManager[Any]]

_TYPE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_QUEUE: Final = re.compile(keys.QUEUE_NAME)
_ID: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")

CONCURRENCY_MAX: Final = 10_000
"""Most slots of one worker."""


class Worker:
    """Runs tasks of some queues, up to `concurrency` at a time.

        worker = duly.Worker("redis://localhost:6379/0", queues=["default"], concurrency=50)

        @worker.task("email.send")
        async def send(ctx: duly.Context, payload: Email) -> dict: ...

        worker.run()

    A worker has one life: after `run` or `serve` has ended, make a new one.
    """

    def __init__(
        self,
        redis_url: str,
        queues: Sequence[str] = ("default",),
        concurrency: int = 50,
        *,
        id: str | None = None,  # noqa: A002 - the name that users see
        api: str | None = None,
        token: str | None = None,
        drain_timeout_s: float = 30.0,
        processes: int | None = None,
        codec: Codec | None = None,
    ) -> None:
        """Prepare a worker; nothing is connected yet.

        `redis_url`: where the nodes publish (`redis://`, `rediss://`, `unix://`,
        `redis+sentinel://`, `redis+cluster://` or `rediss+cluster://`).
        `queues`: from which queues to take tasks.
        `concurrency`: 1 to 10,000 tasks at a time; plain functions get a thread each.
        `id`: a name that no other live worker has; None makes one from host, process and chance.
        `api`, `token`: a node's base URL and bearer token, asked before a task with
        `on_lost = fail` may start; without `api` such tasks are given back.
        `drain_timeout_s`: how long `stop` lets running handlers go on.
        `processes`: most handlers at once that run in processes; None: one for each processor.
        `codec`: decodes payloads, and encodes results and what errors say. Tasks that cannot be decoded are given back.

        Raises ValueError or TypeError that names what is wrong.
        """
        if isinstance(queues, str):
            raise TypeError(f'queues is a list of names, as in ["{queues}"]')
        if not queues:
            raise ValueError("queues must name at least one queue")
        for queue in queues:
            _check("queue", queue, _QUEUE)
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"concurrency is 1 to {CONCURRENCY_MAX}, not {concurrency}")
        if id is not None:
            _check("worker id", id, _ID)
        if api is not None and not api.startswith(("http://", "https://")):
            raise ValueError(f"api is an http:// or https:// URL, not {api!r}")
        try:
            redis_urls.check(redis_url)
        except ValueError as error:
            raise ValueError(f"redis_url must be {error}") from None
        if not drain_timeout_s >= 0:
            raise ValueError(f"drain_timeout_s is 0 or more seconds, not {drain_timeout_s}")
        if processes is not None and not 1 <= processes <= CONCURRENCY_MAX:
            raise ValueError(f"processes is 1 to {CONCURRENCY_MAX}, not {processes}")
        self._codec = codec
        self._processes = processes or os.cpu_count() or 1
        self._middleware: list[Middleware] = []
        self._lifespan: Lifespan | None = None
        self._redis_url = redis_url
        self._queues = list(dict.fromkeys(queues))
        self._concurrency = concurrency
        self._id = id
        self._api = api.rstrip("/") if api is not None else None
        self._token = token
        self._drain_timeout_s = drain_timeout_s
        self._handlers = Handlers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: Session | None = None
        self._stops = 0

    @property
    def id(self) -> str:
        """The worker's id; one that is not given is made at the first look, so after any fork."""
        if self._id is None:
            host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:100] or "host"
            self._id = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
        return self._id

    @property
    def queues(self) -> list[str]:
        """The queues that this worker takes tasks from."""
        return list(self._queues)

    @property
    def concurrency(self) -> int:
        """Most tasks at a time."""
        return self._concurrency

    @property
    def types(self) -> list[str]:
        """The task types that have a handler."""
        return self._handlers.types()

    def task(
        self,
        type: str,  # noqa: A002 - the name that users see
        *,
        process: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function, async or plain, as the handler of `type`.

        `process`: run this plain function of a module in a process of its own, so that it has a processor
        for itself, and is killed when the attempt is cancelled or its time is up. Its payload and
        result are pickled; what it prints is lost.

        It takes `(ctx)` or `(ctx, payload)`. The payload is decoded to its annotation by msgspec;
        without one, or with Any, dict or list, numbers stay exact (see
        `duly.nodes.exact_json`). What it returns becomes the task's result, as JSON of at
        most 256 KiB. Raises TypeError for a function that does not fit, ValueError for a bad type
        or a second handler of one type.
        """
        _check("task type", type, _TYPE)

        def register(function: F) -> F:
            caller = sys._getframe(1)  # annotations in text form may name its local classes
            self._handlers.add(type, function, caller.f_locals, process=process)
            return function

        return register

    def middleware(self, function: M) -> M:
        """Wrap every attempt in the decorated function; of several the first is the outermost.

            @worker.middleware
            async def timed(ctx: duly.Context, call_next: duly.Next) -> object:
                with timer(ctx.type):
                    return await call_next(ctx)

        It returns the result of the attempt, or raises what ends it. A payload that does not fit its
        handler does not come so far. Raises TypeError for a function that is not async.
        """
        fits = inspect.iscoroutinefunction(function)
        if not fits:
            raise TypeError("middleware is an async function of (ctx, call_next)")
        self._middleware.append(function)
        return function

    def lifespan(self, function: L) -> L:
        """Open what handlers share before the first task, and close it after the last one.

            @worker.lifespan
            async def pools() -> AsyncIterator[asyncpg.Pool]:
                async with asyncpg.create_pool(DSN) as pool:
                    yield pool

        What it yields is `ctx.state`. An error in it ends the worker. Raises TypeError for a function that is
        no async generator, ValueError for a second one.
        """
        fits = inspect.isasyncgenfunction(function)
        if not fits:
            raise TypeError("a lifespan is an async function that yields once")
        if self._lifespan is not None:
            raise ValueError("there is a lifespan already")
        self._lifespan = contextlib.asynccontextmanager(function)
        return function

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop`; then drain. A second signal stops at once."""
        run_until_done(self.serve(), self._signalled)

    async def serve(self) -> None:
        """Work inside a running event loop until `stop`, or until cancelled, which stops at once.

        Raises RuntimeError if this worker has been started before.
        """
        if self._loop is not None:
            raise RuntimeError("this worker was started before; make a new one")
        self._loop = asyncio.get_running_loop()
        if self._stops:
            return
        self._session = session = Session(self._settings(self.id), self._handlers)
        life = asyncio.create_task(session.run())
        try:
            await asyncio.shield(life)
        except asyncio.CancelledError:
            session.hurry()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([life])
            raise

    def stop(self) -> None:
        """Begin to drain; from any thread, before or after the start, and as often as you like."""
        self._stops = max(self._stops, 1)
        self._tell()

    def elsewhere(self, worker_id: str, **changed: Any) -> tuple[Settings, Handlers]:
        """What a session of another worker with these handlers is made of, as `duly.testing` runs them.

        `changed`: fields of the settings, such as `redis_url`. This worker's one life is not used up.
        """
        return replace(self._settings(worker_id), **changed), self._handlers

    def _settings(self, worker_id: str) -> Settings:
        return Settings(
            redis_url=self._redis_url,
            worker_id=worker_id,
            queues=self._queues,
            concurrency=self._concurrency,
            api=self._api,
            token=self._token,
            drain_timeout_s=self._drain_timeout_s,
            processes=self._processes,
            middleware=self._middleware,
            lifespan=self._lifespan or contextlib.nullcontext,
            codec=self._codec,
        )

    def _signalled(self) -> None:
        self._stops += 1
        self._tell()

    def _tell(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped already
                self._loop.call_soon_threadsafe(self._heed)

    def _heed(self) -> None:
        if self._session is not None:
            if self._stops > 1:
                self._session.hurry()
            else:
                self._session.stop()


def _check(what: str, name: str, allowed: re.Pattern[str]) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a {what} is text, not {name!r}")
    if not allowed.fullmatch(name):
        raise ValueError(f"{what} {name!r} does not match {allowed.pattern}")
