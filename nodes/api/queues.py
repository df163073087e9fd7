"""The queues: what is set of each, what waits in it, who works on it; and changing what is set."""

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, NamedTuple

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.nodes.api import answers, bodies, queries
from duly.nodes.api.access import note
from duly.nodes.api.problems import FieldError, invalid
from duly.nodes.api.task_counts import TaskCounts
from duly.storage import queues
from duly.storage.audit import Note
from duly.storage.counting import Counts, Depth
from duly.storage.keys import QUEUE_NAME
from duly.storage.queues import Control, ControlChange
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.wheel.durations import from_us

log = logging.getLogger("duly.api")

_NAME = re.compile(QUEUE_NAME)
_BODY_BYTES = 4096
_AT_ONCE = 16  # queues that Redis is asked about
_REDIS_S = 2.0  # for all that one request wants of Redis

Rate = Annotated[float, Meta(ge=1e-6, le=1e6)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class QueueChange(msgspec.Struct, forbid_unknown_fields=True):
    """What to set of a queue; absent fields stay, null ends a limit. `rate`: tasks a second, all nodes together."""

    paused: bool | UnsetType = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Count | UnsetType | None = UNSET
    max_in_flight: Count | UnsetType | None = UNSET


class QueueView(msgspec.Struct):
    """A queue.

    `pending`, `running`: tasks, as counted some seconds ago; an estimate if not `exact`, as in a large
    store, and 0 while none were counted yet. `backlog`: entries of the stream that no worker has fetched. `workers`: how many live ones read it. These two and
    `next_token_at` are null while Redis does not answer. `next_token_at`: when the rate lets the next
    task go, null if that is now.
    """

    queue: str
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    rate: float | None
    burst: int | None
    max_in_flight: int | None
    updated_at: datetime | None
    updated_by: str | None
    pending: int
    running: int
    backlog: int | None
    workers: int | None
    next_token_at: datetime | None
    exact: bool


class QueuePage(msgspec.Struct):
    """A page of queues, by name."""

    items: list[QueueView]
    next_cursor: str | None


class _Seen(NamedTuple):
    """What Redis says of a queue."""

    backlog: int | None = None
    workers: int | None = None
    next_token_at: datetime | None = None


_change: Final = msgspec.json.Decoder(QueueChange)


class QueueHandlers:
    """Everything under /v1/queues."""

    def __init__(self, context: Context, counts: TaskCounts) -> None:
        self._context = context
        self._counts = counts
        self._redis = Patience("telling nodes of changes of queues", log)

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/v1/queues", self.listing, allow_head=False),
            web.get("/v1/queues/{queue}", self.get, allow_head=False),
            web.put("/v1/queues/{queue}", self.put),
        ]

    async def listing(self, request: web.Request) -> web.Response:
        """Every queue of which anything is set, or that has tasks, a stream or workers."""
        queries.known_only(request, ("contains", "limit", "cursor"))
        limit, after = queries.limit(request), queries.queue_cursor(request)
        part = (queries.text(request, "contains") or "").lower()
        controls = {one.queue: one for one in await queues.controls(self._context.api_db)}
        counts = await self._counted()
        until = _until()
        names = sorted({*controls, *counts.queues, *await self._streams(until)})
        found = [name for name in names if part in name.lower() and (after is None or name > after)]
        more = queries.encode_cursor(found[limit - 1]) if len(found) > limit else None
        shown = [controls.get(name) or Control(name) for name in found[:limit]]
        return answers.body(QueuePage(await self._views(shown, counts, until), more))

    async def get(self, request: web.Request) -> web.Response:
        """One queue; one that nobody has used yet is empty, and nothing is set of it."""
        queries.known_only(request, ())
        name = _queue(request)
        controls = {one.queue: one for one in await queues.controls(self._context.api_db)}
        return await self._answer(controls.get(name) or Control(name))

    async def put(self, request: web.Request) -> web.Response:
        """Set something of a queue, for all nodes."""
        queries.known_only(request, ())
        name = _queue(request)
        body = bodies.decode(_change, await bodies.read(request, _BODY_BYTES))
        given = {k: v for k, v in msgspec.structs.asdict(body).items() if v is not UNSET}
        if not given:
            raise invalid(FieldError("body", "names nothing to change"))
        wanted = ControlChange(
            given.get("paused"),
            "rate" in given, given.get("rate"),
            "burst" in given, given.get("burst"),
            "max_in_flight" in given, given.get("max_in_flight"),
        )  # fmt: skip
        now = from_us(self._context.clock.now_us())
        noted = note("queue", {"queue": name, **given})
        control = await self._control(name, wanted, now, noted)
        # At once: while Redis hangs, one wait is enough.
        answer, _ = await asyncio.gather(self._answer(control), self._announce())
        return answer

    async def _announce(self) -> None:
        try:
            async with asyncio.timeout(_REDIS_S):
                await self._context.streams.signals.announce_controls()
        except TROUBLE as error:
            self._redis.failed(error)  # the nodes look all the same
        else:
            self._redis.worked()

    async def _control(
        self, name: str, wanted: ControlChange, now: datetime, noted: Note
    ) -> Control:
        return await queues.control(self._context.api_db, name, wanted, now, noted)

    async def _answer(self, control: Control) -> web.Response:
        (view,) = await self._views([control], await self._counted(), _until())
        return answers.body(view)

    async def _counted(self) -> Counts:
        counted = await self._counts.get()
        return Counts({}, {}, exact=False) if counted is None else counted.counts

    async def _streams(self, until: float) -> set[str]:
        """The queues that have a stream, and those that live workers read."""
        streams = self._context.streams
        try:
            async with asyncio.timeout_at(until):
                known, workers = await asyncio.gather(
                    streams.queues.names(), streams.sight.workers()
                )
        except TROUBLE:
            return set()
        alive = [one.says for one in workers if one.says is not None]
        read = {name for says in alive for name in says.queues or () if _NAME.fullmatch(name)}
        return known | read

    async def _views(
        self, controls: Sequence[Control], counts: Counts, until: float
    ) -> list[QueueView]:
        """As they are shown; Redis is asked on the loop's clock until `until`."""
        limit, away = asyncio.Semaphore(_AT_ONCE), False

        async def look(control: Control) -> _Seen:
            nonlocal away
            async with limit:
                if away:  # one wait for an answer is enough
                    return _Seen()
                try:
                    async with asyncio.timeout_at(until):
                        return await self._look(control)
                except TROUBLE as error:
                    away = away or not is_of_one_queue(error)
                    return _Seen()

        seen = await asyncio.gather(*map(look, controls))
        none = Depth(0, 0, 0, 0)
        found = []
        for control, said in zip(controls, seen, strict=True):
            depth = counts.queues.get(control.queue, none)
            found.append(QueueView(*control, depth.pending, depth.running, *said, counts.exact))
        return found

    async def _look(self, control: Control) -> _Seen:
        streams, pace = self._context.streams, control.pace
        sight = await streams.sight.queue(control.queue)
        wait_s = 0.0 if pace is None else await streams.permits.next_s(control.queue, pace)
        now_us = self._context.clock.now_us()
        next_at = from_us(now_us + round(wait_s * 1e6)) if wait_s else None
        return _Seen(sight.backlog, len(sight.alive), next_at)


def _until() -> float:
    return asyncio.get_running_loop().time() + _REDIS_S


def _queue(request: web.Request) -> str:
    name = request.match_info["queue"]
    if not _NAME.fullmatch(name):
        message = "must be 1 to 100 characters of A-Z a-z 0-9 _ . : / -, no part of it . or .. (write / as %2F)"
        raise invalid(FieldError("queue", message))
    return name
