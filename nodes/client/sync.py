"""`duly.SyncClient`: the client for code without an event loop.

Each method hands over to the async client, which lives in one background thread. A SyncClient may
be shared between threads.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

from duly.nodes.client.client import Client
from duly.nodes.client.loop_thread import LoopThread
from duly.nodes.client.models import (
    Alert,
    Explanation,
    LiveNode,
    LiveWorker,
    Occurrence,
    Queue,
    Run,
    Task,
    Verdict,
)
from duly.nodes.client.options import NewTask, QueueChanges, TaskChanges, TaskOptions
from duly.nodes.client.pages import Pages
from duly.nodes.client.sync_bulk import SyncBulkCalls
from duly.nodes.client.values import When

T = TypeVar("T")


class SyncClient:
    """Talks to a node's API; use it as a context manager or with `close`.

    Methods, arguments and errors are those of `Client`.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        token: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """See `Client`."""
        self._client = Client(base_url, token, timeout_s)
        self._thread = LoopThread("duly-client")
        self.bulk = SyncBulkCalls(self._client.bulk, self._thread.run, self._items)
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
            self._thread.run(self._client.close())
        self._thread.close()

    def submit(
        self,
        type: str,  # noqa: A002 - the name that users see
        payload: Any = None,
        **task_options: Unpack[TaskOptions],
    ) -> Task:
        """Submit a task; see `Client.submit`."""
        return self._thread.run(self._client.submit(type, payload, **task_options))

    def submit_batch(self, tasks: Iterable[NewTask | Mapping[str, Any]]) -> list[UUID]:
        """Submit many tasks, all or none; see `Client.submit_batch`."""
        return self._thread.run(self._client.submit_batch(tasks))

    def get(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Return a task; see `Client.get`."""
        return self._thread.run(self._client.get(id))

    def list(
        self,
        *,
        status: str | None = None,
        type: str | None = None,  # noqa: A002 - the name that users see
        queue: str | None = None,
        tag: str | None = None,
        due_before: When | None = None,
        due_after: When | None = None,
        periodic: bool | None = None,
        paused: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[Task]:
        """Look for tasks, newest first; see `Client.list`."""
        pages = self._client.list(
            status=status,
            type=type,
            queue=queue,
            tag=tag,
            due_before=due_before,
            due_after=due_after,
            periodic=periodic,
            paused=paused,
            limit=limit,
        )
        return self._items(pages)

    def cancel(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Cancel a task; see `Client.cancel`."""
        return self._thread.run(self._client.cancel(id))

    def update(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        if_match: int | str | None = None,
        **wanted: Unpack[TaskChanges],
    ) -> Task:
        """Change a pending task; see `Client.update`."""
        return self._thread.run(self._client.update(id, if_match, **wanted))

    def retry(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Make a failed task pending; see `Client.retry`."""
        return self._thread.run(self._client.retry(id))

    def pause(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Let a task not begin until it is resumed; see `Client.pause`."""
        return self._thread.run(self._client.pause(id))

    def resume(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """End a pause; see `Client.resume`."""
        return self._thread.run(self._client.resume(id))

    def run_now(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Run a pending task now; see `Client.run_now`."""
        return self._thread.run(self._client.run_now(id))

    def runs(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        *,
        limit: int | None = None,
    ) -> Iterator[Run]:
        """Return the finished attempts of a task; see `Client.runs`."""
        return self._items(self._client.runs(id, limit=limit))

    def explain(self, id: UUID | str) -> Explanation:  # noqa: A002 - the name that users see
        """Say why a task has not run; see `Client.explain`."""
        return self._thread.run(self._client.explain(id))

    def nodes(self) -> tuple[LiveNode, ...]:
        """Return the live nodes; see `Client.nodes`."""
        return self._thread.run(self._client.nodes())

    def workers(self) -> tuple[LiveWorker, ...]:
        """Return the live workers; see `Client.workers`."""
        return self._thread.run(self._client.workers())

    def alerts(
        self,
        *,
        open: bool | None = None,  # noqa: A002 - the name that users see
        task_id: UUID | str | None = None,
        limit: int | None = None,
    ) -> Iterator[Alert]:
        """Return what went silent or was paused after failures; see `Client.alerts`."""
        return self._items(self._client.alerts(open=open, task_id=task_id, limit=limit))

    def queues(self, *, limit: int | None = None) -> Iterator[Queue]:
        """Return the queues, by name; see `Client.queues`."""
        return self._items(self._client.queues(limit=limit))

    def queue(self, name: str) -> Queue:
        """Return one queue; see `Client.queue`."""
        return self._thread.run(self._client.queue(name))

    def update_queue(self, name: str, **wanted: Unpack[QueueChanges]) -> Queue:
        """Pause, resume or limit a queue; see `Client.update_queue`."""
        return self._thread.run(self._client.update_queue(name, **wanted))

    def ledger(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        *,
        limit: int | None = None,
    ) -> Iterator[Occurrence]:
        """Return what became of the due times of a task; see `Client.ledger`."""
        return self._items(self._client.ledger(id, limit=limit))

    def verdicts(
        self,
        *,
        since: When | None = None,
        until: When | None = None,
        type: str | None = None,  # noqa: A002 - the name that users see
        queue: str | None = None,
        verdict: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Verdict]:
        """Look for what became of due times of any task; see `Client.verdicts`."""
        pages = self._client.verdicts(
            since=since,
            until=until,
            type=type,
            queue=queue,
            verdict=verdict,
            reason=reason,
            limit=limit,
        )
        return self._items(pages)

    def _items(self, pages: Pages[T]) -> Iterator[T]:
        while page := self._thread.run(pages.next_page()):
            yield from page
