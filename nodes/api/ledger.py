"""What became of each occurrence, and which reports were refused."""

import builtins
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries, views
from duly.nodes.api.access import caller
from duly.nodes.api.problems import not_found
from duly.nodes.api.wire import EntryPage, EntryView, LedgerItem, LedgerPage, RejectedView
from duly.storage import ledger, tasks
from duly.storage.ledger import Entry, Place, Rejected, Verdict
from duly.storage.tasks import RunRow, TaskRow

STALE = "stale attempt"
"""Why a report was refused."""

_TOKEN_MAX = (1 << 63) - 1


class _Skipped(msgspec.Struct):
    type: str
    through: datetime | None = None


_skipped = msgspec.json.Decoder(_Skipped | str)


class LedgerHandlers:
    """GET /v1/ledger and the ledger of one task."""

    def __init__(self, context: Context) -> None:
        self._db = context.api_db

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/v1/tasks/{id}/ledger", self.of_task, allow_head=False),
            web.get("/v1/ledger", self.list, allow_head=False),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """A page of verdicts, or of refused reports, newest first."""
        names = ("since", "until", "type", "queue", "verdict", "reason", "limit", "cursor")
        queries.known_only(request, names)
        found, place = await self._entries(
            queries.ledger_filter(request), queries.ledger_place(request), queries.limit(request)
        )
        more = None
        if place is not None:
            at = place.recorded_at.isoformat()
            more = queries.encode_cursor(at, place.task_id, place.token)
        return answers.body(EntryPage([_entry(one) for one in found], more))

    async def _entries(
        self, where: ledger.Filter, after: Place, limit: int
    ) -> tuple[builtins.list[Entry], Place | None]:
        return await ledger.entries(self._db, where, after, limit)

    async def of_task(self, request: web.Request) -> web.Response:
        """A page of the occurrences of a task, newest first; the open one before all others."""
        queries.known_only(request, ("limit", "cursor"))
        task_id, limit = queries.task_id(request), queries.limit(request)
        after = queries.run_cursor(request)
        row = (await tasks.get(self._db, [task_id])).get(task_id)
        if row is None:
            raise not_found(f"task {task_id}")
        found = await ledger.of_task(self._db, task_id, after, limit + 1)
        more = None
        if len(found) > limit:
            found = found[:limit]
            last = found[-1].run
            more = queries.encode_cursor(last.token, last.recorded_at.isoformat())
        first = [] if after is not None or row.finished_at is not None else [row]
        items = await self._items(task_id, first, found)
        return answers.body(LedgerPage(items, more))

    async def _items(
        self, task_id: UUID, first: Sequence[TaskRow], found: Sequence[Verdict]
    ) -> builtins.list[LedgerItem]:
        ended = [one.run for one in found]
        ran = [(one.occurrence, _TOKEN_MAX) for one in first]
        ran += [(run.occurrence, run.token) for run in ended if run.outcome != "skipped"]
        every = [one.occurrence for one in first] + [run.occurrence for run in ended]
        attempts: dict[datetime, list[RunRow]] = defaultdict(list)
        for run in await ledger.attempts(self._db, task_id, ran) if ran else ():
            attempts[run.occurrence].append(run)
        refused: dict[datetime, list[Rejected]] = defaultdict(list)
        for one in await ledger.rejected(self._db, task_id, every) if every else ():
            refused[one.occurrence].append(one)
        seen = caller().may("payload-view")
        verdicts: list[Verdict | None] = [None] * len(first) + list(found)
        return [
            _item(at, verdict, attempts[at], refused[at], payloads=seen)
            for at, verdict in zip(every, verdicts, strict=True)
        ]


def _item(
    occurrence: datetime,
    verdict: Verdict | None,
    attempts: Sequence[RunRow],
    refused: Sequence[Rejected],
    *,
    payloads: bool,
) -> LedgerItem:
    reason = through = None
    if verdict is not None and verdict.verdict == "skipped":
        reason, through = _why(verdict.run.error)
    return LedgerItem(
        occurrence,
        None if verdict is None else verdict.verdict,  # type: ignore[arg-type]  # what the statements say
        reason,
        through,
        None if verdict is None else verdict.run.recorded_at,
        [views.run(run, payloads=payloads) for run in attempts],
        [
            RejectedView(
                one.token, one.outcome, one.worker, one.received_at, STALE, views.raw(one.error),
                one.times,
            )
            for one in refused
        ],
    )  # fmt: skip


def _entry(row: Entry) -> EntryView:
    reason = through = None
    if row.verdict == "skipped":
        reason, through = _why(row.error)
    elif row.verdict == "rejected":
        reason = STALE
    return EntryView(
        row.task_id, row.type, row.queue, row.occurrence,
        row.verdict,  # type: ignore[arg-type]  # what the statements say
        reason, through, row.outcome, row.attempt, row.token, row.worker, row.started_at, row.finished_at, row.recorded_at,
        views.raw(row.error), row.times,
    )  # fmt: skip


def _why(error: str | None) -> tuple[str | None, datetime | None]:
    """Why an occurrence was skipped, and up to when its record stands for others, too."""
    if error is None:
        return None, None
    said = _skipped.decode(error)
    return (said, None) if isinstance(said, str) else (said.type, said.through)
