"""Why has this task not run? Gathers live facts; whichever node is asked can answer."""

import asyncio
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec
from aiohttp import web

from duly.actors import node_info
from duly.actors.context import Context
from duly.actors.ownership import Known, Owner, owners
from duly.nodes.api import access, answers, queries
from duly.nodes.api.facts import Facts, RateNow, Trouble
from duly.nodes.api.judging import judge
from duly.nodes.api.problems import not_found
from duly.nodes.api.reasons import AnyReason, Running
from duly.storage import claims, explain, tasks
from duly.storage.explain import Standing
from duly.storage.queues import Control
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.sight import Progress, QueueSight
from duly.wheel.durations import from_us

_REDIS_S = 2.0  # for all that is asked of Redis
_NAMED = 10  # of the tasks that it waits for
_PUBLISHING = "publishing tasks"
_RENEWING = "renewing leases"


class Explanation(msgspec.Struct):
    """Why a task has not run, at the time `at`; the first reason holds it now."""

    task_id: UUID
    status: str
    at: datetime
    reasons: list[AnyReason]


class _Asked(NamedTuple):
    """What Redis told, as in `Facts`."""

    redis: Trouble | None = None
    broken: str | None = None
    slot: Owner | None = None
    queue: QueueSight | None = None
    rate: RateNow | None = None


class ExplainHandlers:
    """/v1/tasks/{id}/explain."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def routes(self) -> list[web.RouteDef]:
        """The routes of this part."""
        return [web.get("/v1/tasks/{id}/explain", self.get, allow_head=False)]

    async def get(self, request: web.Request) -> web.Response:
        """Look, and judge."""
        queries.known_only(request, ())
        task_id = queries.task_id(request)
        task = await explain.standing(self._context.api_db, task_id)
        if task is None:
            raise not_found(f"task {task_id}")
        facts = await self._gather(task_id, task)
        found = judge(facts)
        if not access.caller().may("payload-view"):
            for one in found:
                if isinstance(one, Running):
                    one.progress_text = None
        return answers.body(Explanation(task_id, task.status, facts.at, found))

    async def _gather(self, task_id: UUID, task: Standing) -> Facts:
        context = self._context
        asked = _Asked()
        if task.finished_at is None:
            asked = await self._ask_redis(task_id, task)
        at = from_us(context.clock.now_us())
        progress = _progress(asked.queue, str(task_id), task.version)
        facts = Facts(at, task, context.options.window_floor, *asked, progress=progress)
        if task.waits_for:
            found = await tasks.get(context.api_db, task.waits_for[:_NAMED])
            return facts._replace(waited_for={one: row.status for one, row in found.items()})
        due = task.next_run_at
        if task.status != "pending" or due is None or due > at:
            return facts
        db, holders = context.api_db, list[UUID]()
        ahead = await explain.ahead(db, task.queue, task.priority, due, at)
        if task.concurrency_key is not None and task.concurrency_limit is not None:
            holders = await claims.key_holders(db, task_id, task.concurrency_limit)
        if task.max_in_flight is not None:
            facts = facts._replace(in_flight=await claims.in_flight(db, task.queue))
        return facts._replace(ahead=ahead, holders=holders, failing=self._failing(asked.slot))

    async def _ask_redis(self, task_id: UUID, task: Standing) -> _Asked:
        context = self._context
        asked = _Asked()
        token = (str(task_id), task.version) if task.status == "running" else ("", 0)
        try:
            async with asyncio.timeout(_REDIS_S):
                known = Known(task.slot, task.slot_owner, task.free_since)
                slots = await owners(context, [known])
                asked = asked._replace(slot=None if slots is None else slots[task.slot])
                asked = asked._replace(queue=await context.streams.sight.queue(task.queue, *token))
                asked = asked._replace(rate=await self._rate(task))
        except TROUBLE as error:
            if is_of_one_queue(error):
                return asked._replace(broken=str(error))
            return asked._replace(redis=self._trouble(str(error) or "no answer"))
        if asked.slot is None:
            detail = "a majority of the lease servers does not answer"
            return asked._replace(redis=self._trouble(detail, (_RENEWING,)))
        # It answers, but perhaps takes no writes.
        failing = context.vitals.redis.now.get(_PUBLISHING)
        return asked._replace(redis=failing and self._trouble(failing.detail, (_PUBLISHING,)))

    def _failing(self, owner: Owner | None) -> list[str]:
        """With what the owner of a slot has trouble, as it said at its last beat."""
        words = self._context.members.words.get(owner.id) if owner and owner.id else None
        said = node_info.read(words) if words else None
        return [name for name in ("redis", "postgres") if getattr(said, name, None) is False]

    async def _rate(self, task: Standing) -> RateNow | None:
        limit = Control(task.queue, rate=task.rate, burst=task.burst).pace
        if limit is None or task.status != "pending":
            return None
        return RateNow(limit, await self._context.streams.permits.next_s(task.queue, limit))

    def _trouble(self, detail: str, works: Collection[str] | None = None) -> Trouble:
        """Since any of these kinds of work has failed; if none has yet, since now."""
        now_s, now = self._context.clock.monotonic(), from_us(self._context.clock.now_us())
        board = self._context.vitals.redis.now
        began = [one.since for work, one in board.items() if works is None or work in works]
        return Trouble(now - timedelta(seconds=now_s - min(began, default=now_s)), detail)


def _progress(queue: QueueSight | None, task_id: str, token: int) -> Progress | None:
    """What a worker tells of this attempt."""
    says = [] if queue is None else [one.says for one in queue.workers if one.says is not None]
    told = [one for said in says for one in said.progress]
    return next((one for one in told if (one.id, one.token) == (task_id, token)), None)
