"""`duly.Client`: one method for each call of the API."""

from typing import Final, Unpack
from urllib.parse import quote
from uuid import UUID

from duly.nodes.client import options, sealing
from duly.nodes.client.bulk import BulkCalls
from duly.nodes.client.calls import path_of
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
from duly.nodes.client.options import QueueChanges, TaskChanges
from duly.nodes.client.pages import Items, Pages, listed
from duly.nodes.client.submitting import Submitting
from duly.nodes.client.values import When, moment
from duly.nodes.codec import Codec
from duly.nodes.exact_json import ExactDecoder

_TASKS: Final[ExactDecoder[Items[Task]]] = ExactDecoder(Items[Task])
_RUNS: Final[ExactDecoder[Items[Run]]] = ExactDecoder(Items[Run])
_EXPLANATION: Final[ExactDecoder[Explanation]] = ExactDecoder(Explanation)
_NODES: Final[ExactDecoder[Items[LiveNode]]] = ExactDecoder(Items[LiveNode])
_WORKERS: Final[ExactDecoder[Items[LiveWorker]]] = ExactDecoder(Items[LiveWorker])
_ALERTS: Final[ExactDecoder[Items[Alert]]] = ExactDecoder(Items[Alert])
_QUEUE: Final[ExactDecoder[Queue]] = ExactDecoder(Queue)
_QUEUES: Final[ExactDecoder[Items[Queue]]] = ExactDecoder(Items[Queue])
_OCCURRENCES: Final[ExactDecoder[Items[Occurrence]]] = ExactDecoder(Items[Occurrence])
_VERDICTS: Final[ExactDecoder[Items[Verdict]]] = ExactDecoder(Items[Verdict])


class Client(Submitting):
    """Talks to a node's API; use it in one event loop, as an async context manager or with `close`.

    Every method raises a `DulyError`: `Unreachable` without an answer, else the `ApiError` of the
    answer (see `duly.nodes.client.errors`). Wrong arguments raise TypeError or ValueError before
    anything is sent.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        token: str | None = None,
        timeout_s: float = 10.0,
        *,
        codec: Codec | None = None,
    ) -> None:
        """Prepare a client; the first call connects.

        `token`: bearer token, if the node asks for one. `timeout_s`: longest wait for one answer;
        a call that is repeated may take three times as long and the pauses between.
        `codec`: encodes payloads, and decodes what the client shows; what it cannot decode is `Unreadable`.
        """
        super().__init__(base_url, token, timeout_s, codec)
        self.bulk = BulkCalls(self._send, codec)
        """Actions on all tasks that a filter finds."""

    async def get_by_name(self, name: str) -> Task:
        """Return the unfinished task with a name; raises NotFound if there is none."""
        path = f"/v1/names/{quote(name, safe='')}"
        return self._task(await self._send("GET", path, repeatable=True))

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
        name: str | None = None,
        limit: int | None = None,
    ) -> Pages[Task]:
        """Look for tasks, newest first: `async for task in client.list(status="failed")`.

        `tag` is `key:value`. `limit`: most tasks in all; they are fetched page by page.
        """
        query = {"status": status, "type": type, "queue": queue, "tag": tag, "name": name}
        for field, value in (("due_before", due_before), ("due_after", due_after)):
            query[field] = None if value is None else moment(field, value)
        for field, flag in (("periodic", periodic), ("paused", paused)):
            query[field] = None if flag is None else str(flag).lower()
        return listed(self._send, "/v1/tasks", query, _TASKS, limit, self._may_wait)

    async def cancel(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Cancel a task: a pending one never runs, a running one is told to stop.

        Raises NotFound, or Conflict if it has finished.
        """
        return self._task(await self._send("POST", path_of(id, "cancel")))

    async def update(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        if_match: int | str | None = None,
        **wanted: Unpack[TaskChanges],
    ) -> Task:
        """Change a pending task; with `if_match` only if that is still its version.

        `schedule`, `overrun` and `misfire_grace` of a periodic task may change while it runs.

        Raises NotFound, Conflict if it is not pending, PreconditionFailed for another version.
        """
        headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
        body = options.encode(sealing.seal_change(self._codec, options.changes(wanted)))
        return self._task(await self._send("PATCH", path_of(id), body, headers=headers))

    async def retry(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Make a failed task pending, due now; raises NotFound, or Conflict if it has not failed."""
        return self._task(await self._send("POST", path_of(id, "retry")))

    async def pause(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Let a task not begin until it is resumed; what runs goes on.

        Raises NotFound, or Conflict if it has finished.
        """
        return self._task(await self._send("POST", path_of(id, "pause")))

    async def resume(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """End a pause. Occurrences that came due in it are skipped, a one-off runs now.

        Raises NotFound, or Conflict if it has finished.
        """
        return self._task(await self._send("POST", path_of(id, "resume")))

    async def run_now(self, id: UUID | str) -> Task:  # noqa: A002 - the name that users see
        """Run a pending task now; a periodic one goes on by its schedule after it.

        Raises NotFound, or Conflict if it runs, is paused, or has finished.
        """
        return self._task(await self._send("POST", path_of(id, "run-now")))

    def runs(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        *,
        limit: int | None = None,
    ) -> Pages[Run]:
        """Return the finished attempts of a task, newest first; `limit`: most runs in all."""
        shown = sealing.each(self._codec, sealing.run)
        return listed(self._send, path_of(id, "runs"), {}, _RUNS, limit, shown)

    async def explain(self, id: UUID | str) -> Explanation:  # noqa: A002 - the name that users see
        """Say why a task has not run; raises NotFound."""
        return _EXPLANATION.decode(await self._send("GET", path_of(id, "explain")))

    async def nodes(self) -> tuple[LiveNode, ...]:
        """Return the live nodes, the oldest first."""
        return tuple(_NODES.decode(await self._send("GET", "/v1/nodes")).items)

    async def workers(self) -> tuple[LiveWorker, ...]:
        """Return the live workers, by id."""
        return tuple(_WORKERS.decode(await self._send("GET", "/v1/workers")).items)

    def alerts(
        self,
        *,
        open: bool | None = None,  # noqa: A002 - the name that users see
        task_id: UUID | str | None = None,
        limit: int | None = None,
    ) -> Pages[Alert]:
        """Return what went silent or was paused after failures, newest first; `open`: what lasts still."""
        where = {
            "open": None if open is None else str(open).lower(),
            "task_id": None if task_id is None else str(task_id),
        }
        return listed(self._send, "/v1/alerts", where, _ALERTS, limit)

    def queues(self, *, limit: int | None = None) -> Pages[Queue]:
        """Return the queues, by name: `async for queue in client.queues()`; `limit`: most in all."""
        return listed(self._send, "/v1/queues", {}, _QUEUES, limit)

    async def queue(self, name: str) -> Queue:
        """Return one queue; one that nobody has used yet is empty."""
        return _QUEUE.decode(await self._send("GET", _queue_path(name)))

    async def update_queue(self, name: str, **wanted: Unpack[QueueChanges]) -> Queue:
        """Pause or resume a queue, or limit it, for all nodes; returns it as it is then."""
        body = options.encode(options.queue_changes(wanted))
        return _QUEUE.decode(await self._send("PUT", _queue_path(name), body))

    def ledger(
        self,
        id: UUID | str,  # noqa: A002 - the name that users see
        *,
        limit: int | None = None,
    ) -> Pages[Occurrence]:
        """Return the due times of a task and what became of each, newest first, an open one before all."""
        shown = sealing.each(self._codec, sealing.occurrence)
        return listed(self._send, path_of(id, "ledger"), {}, _OCCURRENCES, limit, shown)

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
    ) -> Pages[Verdict]:
        """Look for what became of due times of any task, newest first, recorded from `since` to `until`.

        `verdict`: `completed`, `failed`, `cancelled`, `skipped`, or `rejected` for refused reports.
        """
        query = {"type": type, "queue": queue, "verdict": verdict, "reason": reason}
        for name, value in (("since", since), ("until", until)):
            query[name] = None if value is None else moment(name, value)
        shown = sealing.each(self._codec, sealing.verdict)
        return listed(self._send, "/v1/ledger", query, _VERDICTS, limit, shown)


def _queue_path(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"
