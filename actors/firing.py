"""One batch of one queue on its way: claim, read back if in doubt, publish.

Crash points: before the claim commits, nothing has happened. After it, the rows are `running` and
not in the stream: whoever owns their slots publishes them once `dispatch_grace` is over. Publishing
twice is harmless.
"""

import logging
from typing import NamedTuple
from uuid import UUID

import anyio

from duly.actors.context import Context
from duly.actors.messages import Ownership, Refused
from duly.actors.patience import Patience
from duly.storage import claims
from duly.storage.claims import Claimed
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.storage.slots import DueRow
from duly.storage.stream_facts import Backlog
from duly.wheel.durations import from_us

log = logging.getLogger("duly.dispatcher")


_REFUSED_S = 0.1  # by then an Ownership should have come that says which slots are gone


class Fired(NamedTuple):
    """The queue's backlog after it, None if nothing was published; what is still to be claimed."""

    backlog: Backlog | None
    unclaimed: list[DueRow]


class Firing:
    """Claims and publishes; knows what is under way and whether Redis takes anything."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: set[UUID] = set()
        self._postgres = Patience("claiming tasks", log)
        self._redis = Patience("publishing tasks", log)
        self._redis_retry_at = 0.0

    def is_under_way(self, task_id: UUID) -> bool:
        """True between taking a task up and its publication."""
        return task_id in self._under_way

    def redis_pause_s(self) -> float:
        """More than 0 for a while after a failure: nothing is claimed that could not go out."""
        return max(0.0, self._redis_retry_at - self._context.clock.monotonic())

    async def fire(self, queue: str, rows: list[DueRow], own: Ownership) -> Fired:
        """Claim and publish rows of one queue."""
        ids = [row.id for row in rows]
        self._under_way.update(ids)
        try:
            rows = [row for row in rows if row.slot in own.epochs]
            if not rows:
                return Fired(None, [])
            # While Redis is away a look at it comes before every claim.
            if self._redis.failing and await self.backlog(queue) is None:
                return Fired(None, rows)
            tasks, unclaimed = await self._claim(rows, own)
            return Fired(await self._publish(queue, tasks) if tasks else None, unclaimed)
        finally:
            self._under_way.difference_update(ids)

    async def backlog(self, queue: str) -> Backlog | None:
        """What waits in a queue's stream; None if Redis does not say."""
        try:
            backlog = await self._context.streams.backlog(queue)
        except TROUBLE as error:
            self._note_redis(error)
            return None
        self._redis_works()
        return backlog

    async def _claim(
        self, rows: list[DueRow], own: Ownership
    ) -> tuple[list[Claimed], list[DueRow]]:
        """What this node has claimed now, and what it should try again."""
        context = self._context
        now = from_us(context.clock.now_us())
        try:
            claim = await claims.claim(context.db, context.node_id, rows, dict(own.epochs), now)
        except StoreUnavailableError as error:
            if not error.in_doubt:
                await anyio.sleep(self._postgres.failed(error))
                return [], rows
            return await self._read_back(rows, error)
        self._postgres.worked()
        context.vitals.claimed += len(claim.tasks)
        if not claim.owned:
            log.warning("a claim was refused: slots have a new owner")
            context.boxes.leases.offer(Refused())
            await anyio.sleep(_REFUSED_S)
            return [], rows
        if len(claim.tasks) < len(rows):
            # Cancelled, changed or paused meanwhile; or too late for their misfire grace.
            claimed = {task.id for task in claim.tasks}
            missing = [row for row in rows if row.id not in claimed]
            try:
                await claims.expire(context.db, missing, now)
            except StoreUnavailableError as error:
                self._postgres.failed(error)
                return claim.tasks, missing
        return claim.tasks, []

    async def _read_back(
        self, rows: list[DueRow], error: StoreUnavailableError
    ) -> tuple[list[Claimed], list[DueRow]]:
        """The claim may have committed. Find out, as long as it takes."""
        while True:
            await anyio.sleep(self._postgres.failed(error))
            try:
                found = await claims.claimed_by(self._context.db, self._context.node_id, rows)
            except StoreUnavailableError as again:
                error = again
                continue
            self._postgres.worked()
            ours = {task.id for task in found}
            return found, [row for row in rows if row.id not in ours]

    async def _publish(self, queue: str, tasks: list[Claimed]) -> Backlog | None:
        while tasks:
            try:
                backlog = await self._context.streams.publish(queue, tasks)
            except TROUBLE as error:
                # They are claimed: sent again until it works, or the reaper finds them.
                await anyio.sleep(self._note_redis(error))
                tasks = await self._still_running(tasks)
                continue
            self._redis_works()
            return backlog
        return None

    async def _still_running(self, tasks: list[Claimed]) -> list[Claimed]:
        """Only an answer may have been lost: what has ended since must not be published again."""
        while True:
            try:
                found = await claims.running(
                    self._context.db, [(task.id, task.token) for task in tasks]
                )
            except StoreUnavailableError as error:
                await anyio.sleep(self._postgres.failed(error))
                continue
            self._postgres.worked()
            return found

    def _note_redis(self, error: BaseException) -> float:
        wait_s = self._redis.failed(error)
        self._redis_retry_at = self._context.clock.monotonic() + wait_s
        self._context.vitals.redis_error = str(error) or type(error).__name__
        return wait_s

    def _redis_works(self) -> None:
        self._redis.worked()
        self._redis_retry_at = 0.0
