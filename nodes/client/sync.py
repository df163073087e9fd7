"""`duly.SyncClient`: the client for code without an event loop.

Each method is that of the async client, with its arguments and types; the call is handed over to one
background thread, in which the async client lives. A SyncClient may be shared between threads.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

from duly.nodes.client.batches import Progress, stream
from duly.nodes.client.bulk import BulkCalls
from duly.nodes.client.client import Client
from duly.nodes.client.loop_thread import LoopThread
from duly.nodes.client.options import NewTask
from duly.nodes.client.pages import Pages
from duly.nodes.codec import Codec

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class _Sync(Generic[C_co]):
    """The calls of an async object, made in a background thread."""

    def __init__(self, calls: C_co, thread: LoopThread) -> None:
        self._calls = calls
        self._thread = thread


def _waits(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Sync[C], P], T]:
    """The same method for a caller who waits."""

    @wraps(method)
    def call(self: _Sync[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._calls, *args, **kwargs))

    return call


def _items(
    method: Callable[Concatenate[C, P], Pages[T]],
) -> Callable[Concatenate[_Sync[C], P], Iterator[T]]:
    """The same list as a plain iterator, which fetches page by page."""

    @wraps(method)
    def call(self: _Sync[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return _one_by_one(self._thread, method(self._calls, *args, **kwargs))

    return call


def _one_by_one(thread: LoopThread, pages: Pages[T]) -> Iterator[T]:
    while page := thread.run(pages.next_page()):
        yield from page


class SyncBulkCalls(_Sync[BulkCalls]):
    """See `BulkCalls`."""

    preview = _waits(BulkCalls.preview)
    begin = _waits(BulkCalls.begin)
    jobs = _items(BulkCalls.jobs)
    job = _waits(BulkCalls.job)
    stop = _waits(BulkCalls.stop)


class SyncClient(_Sync[Client]):
    """Talks to a node's API; use it as a context manager or with `close`.

    Methods, arguments and errors are those of `Client`.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        token: str | None = None,
        timeout_s: float = 10.0,
        *,
        codec: Codec | None = None,
    ) -> None:
        """See `Client`."""
        client = Client(base_url, token, timeout_s, codec=codec)
        super().__init__(client, LoopThread("duly-client"))
        self.bulk = SyncBulkCalls(self._calls.bulk, self._thread)
        """Actions on all tasks that a filter finds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread; safe to call twice."""
        if self._thread.usable:
            self._thread.run(self._calls.close())
        self._thread.close()

    def submit_many(
        self,
        tasks: Iterable[NewTask | Mapping[str, Any]],
        *,
        batch_size: int = 1000,
        progress: Progress = False,
    ) -> list[UUID]:
        """See `Client.submit_many`. The tasks are taken from their iterator in the caller's thread."""
        with stream(batch_size, progress, tasks) as some:
            for task in tasks:
                if batch := some.add(task):
                    some.stored(self.submit_batch(batch))
            if batch := some.rest():
                some.stored(self.submit_batch(batch))
        return some.ids

    submit = _waits(Client.submit)
    submit_batch = _waits(Client.submit_batch)
    get = _waits(Client.get)
    get_by_name = _waits(Client.get_by_name)
    wait = _waits(Client.wait)
    list = _items(Client.list)
    cancel = _waits(Client.cancel)
    update = _waits(Client.update)
    retry = _waits(Client.retry)
    pause = _waits(Client.pause)
    resume = _waits(Client.resume)
    run_now = _waits(Client.run_now)
    runs = _items(Client.runs)
    explain = _waits(Client.explain)
    nodes = _waits(Client.nodes)
    workers = _waits(Client.workers)
    alerts = _items(Client.alerts)
    queues = _items(Client.queues)
    queue = _waits(Client.queue)
    update_queue = _waits(Client.update_queue)
    ledger = _items(Client.ledger)
    verdicts = _items(Client.verdicts)
