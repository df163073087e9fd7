"""One batch of one queue on its way: claim, read back if in doubt, publish.

Crash points: before the claim commits, nothing has happened. After it, the rows are `running` and
not in the stream: whoever owns their slots publishes them once `dispatch_grace` is over. Publishing
twice is harmless.

While Redis is away nothing is claimed, until a probe has shown that it takes writes again. If only
the keys of one queue are at fault, that queue alone waits; what it had claimed is left to the reaper.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import anyio

from duly.actors import trail
from duly.actors.claiming import Claiming
from duly.actors.context import Context
from duly.actors.messages import Ownership
from duly.actors.patience import Patience, QueuePatience
from duly.actors.tracing import Fires
from duly.storage.claims import Claimed, Held
from duly.storage.permits import Grant, Rate
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.slots import DueRow
from duly.storage.stream_facts import Backlog
from duly.wheel.durations import from_us, to_us

log = logging.getLogger("duly.dispatcher")


# A new owner of the slots publishes claims that are a second old, and a worker may end them at once.
# Or they are cancelled, and in the end even the fence is forgotten.
SURE_S = 0.5
"""So old may a row be, as it was read, when its task is published."""

_PROBE_EVERY_S = 0.5  # of Redis while it is away: all nodes should notice at about the same time
_HELD_BACK_MAX_S = 5.0  # half of the grace after which the reaper publishes it


class Fired(NamedTuple):
    """The queue's backlog after it, None if nothing was published; what is still to be claimed."""

    backlog: Backlog | None
    unclaimed: list[DueRow]
    claimed: int = 0
    held: Mapping[UUID, Held] = MappingProxyType({})
    """What was not claimed because enough of its kind runs."""


class Firing:
    """Claims and publishes; knows what is under way and whether Redis takes anything."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: set[UUID] = set()
        self._claiming = Claiming(context, self._mended_now)
        self._redis = Patience(
            "publishing tasks", log, context.vitals.redis, longest_s=_PROBE_EVERY_S
        )
        self._redis_retry_at = 0.0
        self.mended_at = -math.inf
        """When Redis, or PostgreSQL for claims, worked again after it had failed."""
        self._queues = QueuePatience("publishing tasks", log, context.clock.monotonic)
        self.held_back = 0
        """Batches that are claimed and wait: for their due time, for those before them, or for the queue's rate."""
        self._latest: dict[str, anyio.Event] = {}  # per queue: set once its last batch is out

    def is_under_way(self, task_id: UUID) -> bool:
        """True between taking a task up and its publication."""
        return task_id in self._under_way

    @property
    def redis_fails(self) -> bool:
        """Nothing is to be claimed before a `probe` has worked: it could not go out."""
        return self._redis.failing

    @property
    def claims_fail(self) -> bool:
        """Nobody should wait for what this node would claim."""
        return self._claiming.fails

    def redis_pause_s(self) -> float:
        """Seconds until the next probe is due; 0 = now."""
        return max(0.0, self._redis_retry_at - self._context.clock.monotonic())

    def pause_s(self, queue: str) -> float:
        """Seconds until a queue whose keys are at fault should be tried again; 0 = now."""
        return self._queues.pause_s(queue)

    async def probe(self) -> None:
        """Find out whether Redis takes writes again."""
        try:
            await self._context.streams.probe()
        except TROUBLE as error:
            self._note(None, error)
        else:
            self._redis_works()

    async def ask(self, queue: str, pace: Rate, ranks: list[int]) -> Grant | None:
        """Ask for permits, of a queue with a rate; None if Redis does not say."""
        try:
            permits, may_say = self._context.streams.permits, not self.claims_fail
            return await permits.ask(queue, pace, ranks, may_say=may_say)
        except TROUBLE as error:
            self._note(queue, error)
            return None

    async def give_back(self, queue: str, pace: Rate, count: int) -> None:
        """Permits for which nothing was claimed. If Redis is away, they are not used by anybody."""
        try:
            await self._context.streams.permits.give_back(queue, pace, count)
        except TROUBLE as error:
            self._note(queue, error)

    async def fire(
        self,
        queue: str,
        rows: list[DueRow],
        own: Ownership,
        say: Callable[[], int],
        pace: Rate | None = None,
        *,
        limited: bool = False,
    ) -> Fired:
        """Claim and publish rows of one queue; batches go out in the order of the calls.

        `say`: what to tell the other nodes with it (see `Streams.publish`). `pace`: the queue's rate,
        for which there are permits. `limited`: the queue has `max_in_flight`.
        """
        ids = [row.id for row in rows]
        self._under_way.update(ids)
        before, out = self._latest.get(queue), anyio.Event()
        self._latest[queue] = out
        try:
            rows = [row for row in rows if row.slot in own.epochs]
            if not rows:
                return Fired(None, [])
            if self._queues.failing(queue) and not await self._mended(queue):
                return Fired(None, rows)
            since = self._context.clock.monotonic()
            tasks, unclaimed, held = await self._claiming.claim(
                rows, own, queue if limited else None
            )
            self._context.lead.took(self._context.clock.monotonic() - since)
            claimed_us = self._context.clock.now_us()
            trail.tell(log, "claimed", ((task.id, task.token) for task in tasks))
            self._context.feed.tell_of("claimed", ((task.id, task.token) for task in tasks))
            place = {row.id: number for number, row in enumerate(rows)}
            tasks.sort(key=lambda task: place[task.id])
            if before is not None:
                with nullcontext() if pace is None else self._held_back():
                    await before.wait()
            if claimed := len(tasks):
                pairs = [(task, rows[place[task.id]]) for task in tasks]

                async def publish(some: list[tuple[Claimed, DueRow]]) -> Backlog | None:
                    fired = [row for _, row in some]
                    fires = Fires([task for task, _ in some], fired, self._context.node_id)
                    backlog = await self._publish(queue, fires.tasks, since, say, pace)
                    if backlog is not None:
                        published_us = self._context.clock.now_us()
                        fires.published(published_us)
                        self._context.meters.published(fired, claimed_us, published_us)
                    return backlog

                backlog = await self._when_due(pairs, publish, out)
                return Fired(backlog, unclaimed, claimed, held)
            backlog = None if self.redis_fails else await self.backlog(queue, say)
            return Fired(backlog, unclaimed, 0, held)
        finally:
            self._under_way.difference_update(ids)
            out.set()
            if self._latest.get(queue) is out:  # a later batch may have ended before this one
                del self._latest[queue]

    async def _when_due(
        self,
        left: list[tuple[Claimed, DueRow]],
        publish: Callable[[list[tuple[Claimed, DueRow]]], Awaitable[Backlog | None]],
        out: anyio.Event,
    ) -> Backlog | None:
        """Publish each at its due time, together what is due by then; answers as the last publication did."""
        with ExitStack() as holding:
            while True:
                clock = self._context.clock
                # Not what our clock shows while it waits for the cluster's to catch up.
                now_us = clock.now_us() - clock.ahead_us
                now = from_us(now_us)
                due = [pair for pair in left if pair[1].next_run_at <= now]
                if due:
                    backlog = await publish(due)
                    if backlog is None or len(due) == len(left):
                        return backlog
                    left = [pair for pair in left if pair[1].next_run_at > now]
                    continue
                if not out.is_set():
                    out.set()  # what comes after it may be due sooner
                    holding.enter_context(self._held_back())
                next_us = to_us(min(row.next_run_at for _, row in left))
                await anyio.sleep(math.ceil((next_us - now_us) / 1000) / 1000)

    async def backlog(self, queue: str, say: Callable[[], int]) -> Backlog | None:
        """What waits in a queue's stream; None if Redis does not say."""
        try:
            return await self._context.streams.backlog(queue, say())
        except TROUBLE as error:
            self._note(queue, error)
            return None

    async def _mended(self, queue: str) -> bool:
        """Whether the keys of a queue that failed are right now."""
        try:
            await self._context.streams.queues.check(queue)
        except TROUBLE as error:
            self._note(queue, error)
            return False
        self._queues.worked(queue)
        return True

    async def _publish(
        self,
        queue: str,
        tasks: list[Claimed],
        since: float,
        say: Callable[[], int],
        pace: Rate | None,
    ) -> Backlog | None:
        """Send what was claimed at `since`, again and again: else the reaper would have to find it."""
        clock = self._context.clock
        no_longer_held_at = clock.monotonic() + _HELD_BACK_MAX_S
        while tasks:
            if clock.monotonic() - since > SURE_S:
                since = clock.monotonic()  # before it is asked: the answer may be slow, too
                tasks = await self._claiming.still_running(tasks)
                continue
            gate = pace if clock.monotonic() < no_longer_held_at else None
            try:
                backlog = await self._context.streams.publish(queue, tasks, say(), gate, first=True)
            except TROUBLE as error:
                wait_s = self._note(queue, error)
                if is_of_one_queue(error):
                    return None
                await anyio.sleep(wait_s)
                since = -math.inf
                continue
            self._redis_works()
            tasks, out = tasks[len(tasks) - backlog.held :], tasks[: len(tasks) - backlog.held]
            trail.tell(log, "published", ((task.id, task.token) for task in out))
            if not tasks:
                return backlog
            with self._held_back():
                await anyio.sleep(min(backlog.wait_s, _HELD_BACK_MAX_S))
        return None

    @contextmanager
    def _held_back(self) -> Iterator[None]:
        """Meanwhile other queues may have this batch's place."""
        self.held_back += 1
        self._context.boxes.dispatcher.nudge()
        try:
            yield
        finally:
            self.held_back -= 1

    def _note(self, queue: str | None, error: BaseException) -> float:
        if queue is not None and is_of_one_queue(error):
            self._queues.failed(queue, error)
            return 0.0
        wait_s = self._redis.failed(error)
        self._redis_retry_at = self._context.clock.monotonic() + wait_s
        return wait_s

    def _redis_works(self) -> None:
        if self._redis.failing:
            self._mended_now()
        self._redis.worked()
        self._redis_retry_at = 0.0

    def _mended_now(self) -> None:
        self.mended_at = self._context.clock.monotonic()
