"""`client.bulk`: actions on all tasks that a filter finds."""

from typing import Any, Final, Literal, TypedDict
from urllib.parse import quote
from uuid import UUID

from duly.nodes.client import options, sealing
from duly.nodes.client.models import BulkJob, BulkPreview
from duly.nodes.client.pages import Items, Pages, Send, listed
from duly.nodes.client.values import Duration, When, duration, moment
from duly.nodes.codec import Codec
from duly.nodes.exact_json import ExactDecoder

Action = Literal["cancel", "retry", "pause", "resume", "reschedule"]


class TaskFilter(TypedDict, total=False):
    """Which tasks, as in `Client.list`; `tag` is `name:value`."""

    id: UUID | str
    status: str
    type: str
    queue: str
    tag: str
    due_before: When
    due_after: When
    periodic: bool
    paused: bool
    name: str


_PREVIEW: Final[ExactDecoder[BulkPreview]] = ExactDecoder(BulkPreview)
_JOB: Final[ExactDecoder[BulkJob]] = ExactDecoder(BulkJob)
_JOBS: Final[ExactDecoder[Items[BulkJob]]] = ExactDecoder(Items[BulkJob])


class BulkCalls:
    """The calls under /v1/bulk, for a token of role `admin`."""

    def __init__(self, send: Send, codec: Codec | None) -> None:
        self._send = send
        self._codec = codec

    async def preview(
        self,
        action: Action,
        where: TaskFilter,
        *,
        run_at: When | None = None,
        delay: Duration | None = None,
    ) -> BulkPreview:
        """Tell how many tasks the action would be about, and show some; nothing is changed."""
        body = _body(action, where, run_at, delay) | {"dry_run": True}
        answer = await self._send("POST", "/v1/bulk", options.encode(body), repeatable=True)
        found = _PREVIEW.decode(answer)
        return found if self._codec is None else sealing.preview(self._codec, found)

    async def begin(
        self,
        action: Action,
        where: TaskFilter,
        *,
        rate: float | None = None,
        run_at: When | None = None,
        delay: Duration | None = None,
    ) -> BulkJob:
        """Begin a job, at most `rate` tasks a second (default 500); `reschedule` has `run_at` or `delay`.

        The call is not repeated when its answer is lost.
        """
        body = _body(action, where, run_at, delay)
        if rate is not None:
            body["rate"] = rate
        return _JOB.decode(await self._send("POST", "/v1/bulk", options.encode(body)))

    def jobs(self, *, limit: int | None = None) -> Pages[BulkJob]:
        """Return the jobs, newest first; `limit`: most in all."""
        return listed(self._send, "/v1/bulk", {}, _JOBS, limit)

    async def job(self, id: UUID | str) -> BulkJob:  # noqa: A002 - the name that users see
        """Return a job as it is now; raises NotFound."""
        return _JOB.decode(await self._send("GET", _path(id)))

    async def stop(self, id: UUID | str) -> BulkJob:  # noqa: A002 - the name that users see
        """Let a job change no more; raises NotFound, or Conflict if it has ended."""
        return _JOB.decode(await self._send("POST", _path(id) + "/stop"))


def _body(
    action: Action, where: TaskFilter, run_at: When | None, delay: Duration | None
) -> dict[str, Any]:
    given: dict[str, Any] = dict(where)
    if unknown := sorted(given.keys() - TaskFilter.__annotations__.keys()):
        raise TypeError(f"unknown filter {unknown[0]!r}")
    for name in ("due_before", "due_after"):
        if name in given:
            given[name] = moment(name, given[name])
    if "id" in given:
        given["id"] = str(given["id"])
    body: dict[str, Any] = {"action": action, "filter": given}
    if run_at is not None:
        body["run_at"] = moment("run_at", run_at)
    if delay is not None:
        body["delay"] = duration("delay", delay)
    return body


def _path(job_id: UUID | str) -> str:
    return f"/v1/bulk/{quote(str(job_id), safe='')}"
