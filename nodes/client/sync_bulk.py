"""`SyncClient.bulk`: the same calls for code without an event loop."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from duly.nodes.client.bulk import Action, BulkCalls, TaskFilter
from duly.nodes.client.models import BulkJob, BulkPreview
from duly.nodes.client.pages import Pages
from duly.nodes.client.values import Duration, When


class SyncBulkCalls:
    """See `BulkCalls`."""

    def __init__(
        self,
        calls: BulkCalls,
        run: Callable[[Any], Any],
        items: Callable[[Pages[BulkJob]], Iterator[BulkJob]],
    ) -> None:
        """`run` waits for a coroutine; `items` makes an iterator of pages."""
        self._calls = calls
        self._run = run
        self._items = items

    def preview(
        self,
        action: Action,
        where: TaskFilter,
        *,
        run_at: When | None = None,
        delay: Duration | None = None,
    ) -> BulkPreview:
        """Tell what a job would be about; see `BulkCalls.preview`."""
        found: BulkPreview = self._run(
            self._calls.preview(action, where, run_at=run_at, delay=delay)
        )
        return found

    def begin(
        self,
        action: Action,
        where: TaskFilter,
        *,
        rate: float | None = None,
        run_at: When | None = None,
        delay: Duration | None = None,
    ) -> BulkJob:
        """Begin a job; see `BulkCalls.begin`."""
        job: BulkJob = self._run(
            self._calls.begin(action, where, rate=rate, run_at=run_at, delay=delay)
        )
        return job

    def jobs(self, *, limit: int | None = None) -> Iterator[BulkJob]:
        """Return the jobs, newest first; see `BulkCalls.jobs`."""
        return self._items(self._calls.jobs(limit=limit))

    def job(self, id: UUID | str) -> BulkJob:  # noqa: A002 - the name that users see
        """Return a job; see `BulkCalls.job`."""
        job: BulkJob = self._run(self._calls.job(id))
        return job

    def stop(self, id: UUID | str) -> BulkJob:  # noqa: A002 - the name that users see
        """Stop a job; see `BulkCalls.stop`."""
        job: BulkJob = self._run(self._calls.stop(id))
        return job
