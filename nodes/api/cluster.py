"""The live workers, and who owns the slots."""

from datetime import datetime

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.actors.ownership import Known, owners
from duly.nodes.api import answers, queries
from duly.nodes.api.problems import unavailable
from duly.storage import slots
from duly.storage.redis import TROUBLE
from duly.storage.sight import Worker
from duly.storage.slots import Holding


class WorkerView(msgspec.Struct):
    """A live worker. What its sign of life does not tell is null.

    `held`: tasks it has taken and not reported. `seen_s`: seconds since it was last heard of. `unknown_types`: of
    tasks that it gave back, since it has no handler for them. `unreadable`: why it gave back others, whose payload it
    cannot decode.
    """

    id: str
    host: str | None
    pid: int | None
    queues: list[str] | None
    concurrency: int
    running: int | None
    held: int
    sdk: str | None
    seen_s: float
    unknown_types: list[str]
    unreadable: list[str]


class WorkerList(msgspec.Struct):
    """All live workers, by id; `next_cursor` is always null."""

    items: list[WorkerView]
    next_cursor: str | None = None


class SlotView(msgspec.Struct):
    """A slot. `owner` null: nobody acts on its tasks; then `last_owner`, and since when it is gone.

    Null there too: nobody ever owned it, or it is not known.
    """

    slot: int
    owner: str | None
    epoch: int
    taken_at: datetime | None
    last_owner: str | None
    unowned_since: datetime | None


class SlotList(msgspec.Struct):
    """All slots; `next_cursor` is always null."""

    items: list[SlotView]
    next_cursor: str | None = None


class ClusterHandlers:
    """/v1/workers and /v1/slots."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [
            web.get("/v1/workers", self.workers, allow_head=False),
            web.get("/v1/slots", self.slots, allow_head=False),
        ]

    async def workers(self, request: web.Request) -> web.Response:
        """The workers that give signs of life now."""
        queries.known_only(request, ())
        try:
            found = await self._context.streams.sight.workers()
        except TROUBLE as error:
            raise unavailable(
                f"Redis does not say which workers live: {str(error) or 'no answer'}"
            ) from None
        return answers.body(WorkerList([_shown(one) for one in found if one.says is not None]))

    async def _held(self) -> list[Holding]:
        return await slots.slot_map(self._context.api_db)

    async def slots(self, request: web.Request) -> web.Response:
        """Who owns each slot: in PostgreSQL, and with a lease in Redis."""
        queries.known_only(request, ())
        held = await self._held()
        known = [Known(one.slot, one.owner, one.free_since) for one in held]
        found = await owners(self._context, known)
        if found is None:
            raise unavailable("a majority of the lease servers does not say who holds the leases")
        items = [
            SlotView(
                one.slot, found[one.slot].id, one.epoch, one.taken_at, found[one.slot].last,
                found[one.slot].since,
            )
            for one in held
        ]  # fmt: skip
        return answers.body(SlotList(items))


def _shown(worker: Worker) -> WorkerView:
    says = worker.says
    assert says is not None
    return WorkerView(
        worker.id, says.host, says.pid, says.queues, says.concurrency, says.running,
        worker.pending, says.sdk, round(worker.silent_s, 3), says.unknown_types,
        says.unreadable,
    )  # fmt: skip
