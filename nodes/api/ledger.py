"""What became of each occurrence, and which reports were refused."""

import builtins
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import answers, queries, views
from duly.nodes.api.access import caller
from duly.nodes.api.problems import not_found
from duly.nodes.api.replies import EntryPage, EntryView, LedgerItem, LedgerPage, RejectedView
from duly.storage import ledger
from duly.storage.ledger import Account, Entry, Place, Rejected, Verdict
from duly.storage.tasks import RunRow

STALE = "stale attempt"
"""Why a report was refused."""


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
        found = await ledger.of_task(self._db, task_id, after, limit)
        if found is None:
            raise not_found(f"task {task_id}")
        more = None
        if found.is_more:
            last = found.ended[-1].run
            more = queries.encode_cursor(last.token, last.recorded_at.isoformat())
        return answers.body(LedgerPage(_items(found), more))


def _items(found: Account) -> list[LedgerItem]:
    attempts: dict[datetime, list[RunRow]] = defaultdict(list)
    for run in found.attempts:
        attempts[run.occurrence].append(run)
    rejected: dict[datetime, list[Rejected]] = defaultdict(list)
    for one in found.rejected:
        rejected[one.occurrence].append(one)
    verdicts: list[tuple[datetime, Verdict | None]] = [
        (one.run.occurrence, one) for one in found.ended
    ]
    if found.opened is not None:
        verdicts.insert(0, (found.opened, None))
    seen = caller().may("payload-view")
    return [
        _item(at, verdict, attempts[at], rejected[at], payloads=seen) for at, verdict in verdicts
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
