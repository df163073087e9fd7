"""Claims what is due and publishes it: PostgreSQL first, then Redis, never the other way round.

The stream is a short conveyor. Per queue the dispatcher publishes only while the backlog that no
worker has fetched is below a window (twice what the live workers run at once, with a floor). What
waits for capacity waits here, unclaimed, by priority and due time; so cancel, pause and change
still win.
"""

import logging
from collections import defaultdict

import anyio
import anyio.abc

from duly.actors.context import Context
from duly.actors.firing import Firing
from duly.actors.messages import Capacity, DispatcherMessage, Due, Ownership, Saturated
from duly.actors.ready import ReadyQueue
from duly.actors.runtime import Actor, MailboxClosedError
from duly.storage.slots import DueRow

log = logging.getLogger("duly.dispatcher")

_BATCH = 200
_AT_ONCE = 4  # claims under way, so that the node is not idle while one commits
_LOOK_AGAIN_S = 0.005
_WAIT_S = 30.0


class _Queue:
    """What the dispatcher knows of one queue."""

    def __init__(self) -> None:
        self.ready = ReadyQueue()
        self.backlog = 0  # undelivered, as last told
        self.firing = 0  # claimed or about to be, not yet published
        self.concurrency = 0

    def room(self, floor: int) -> int:
        return max(floor, 2 * self.concurrency) - self.backlog - self.firing


class Dispatcher(Actor[DispatcherMessage]):
    """Never waits for one queue while another could go on."""

    name = "dispatcher"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.dispatcher)
        self._context = context
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._ownership = Ownership({}, 0.0)
        self._firing = Firing(context)
        self._under_way = 0
        self._told_saturated: frozenset[str] = frozenset()
        self._looking: set[str] = set()
        self._ended = anyio.Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as fires:
            while True:
                self._pump(fires)
                await self._tell_saturated()
                try:
                    messages = await self._next(_LOOK_AGAIN_S if self._blocked() else _WAIT_S)
                except MailboxClosedError:
                    break
                for message in messages:
                    self._take(message)
                self.mailbox.handled()
        # Leaving the task group waited for what was claimed to be published.

    async def _next(self, wait_s: float) -> list[DispatcherMessage]:
        """Messages; or nothing, because a fire ended or the time is over."""
        messages: list[DispatcherMessage] = []
        closed: list[MailboxClosedError] = []
        self._ended = anyio.Event()

        async with anyio.create_task_group() as racing:

            async def receive() -> None:
                try:
                    messages.extend(await self.mailbox.receive_batch(64))
                except MailboxClosedError as error:
                    closed.append(error)
                racing.cancel_scope.cancel()

            async def ended() -> None:
                await self._ended.wait()
                racing.cancel_scope.cancel()

            racing.start_soon(receive)
            racing.start_soon(ended)
            with anyio.move_on_after(wait_s):
                await anyio.sleep_forever()
            racing.cancel_scope.cancel()
        if closed and not messages:
            raise closed[0]
        return messages

    def _take(self, message: DispatcherMessage) -> None:
        if isinstance(message, Due):
            for row in message.rows:
                if not self._firing.is_under_way(row.id):
                    self._queues[row.queue].ready.add(row)
        elif isinstance(message, Capacity):
            self._queues[message.queue].concurrency = message.concurrency
        else:
            lost = set(self._ownership.epochs) - set(message.epochs)
            self._ownership = message
            if lost:
                for queue in self._queues.values():
                    queue.ready.keep_slots(frozenset(message.epochs))
        self._context.vitals.ready_entries = sum(len(q.ready) for q in self._queues.values())

    def _pump(self, fires: anyio.abc.TaskGroup) -> None:
        """Start what there is room for."""
        if self._context.clock.monotonic() >= self._ownership.valid_until:
            return
        if not self._firing.redis_is_up():
            return
        for name, queue in self._queues.items():
            while self._under_way < _AT_ONCE and len(queue.ready):
                room = queue.room(self._context.options.window_floor)
                if room <= 0:
                    if name not in self._looking:
                        self._looking.add(name)
                        fires.start_soon(self._look, name, queue)
                    break
                rows = queue.ready.take(min(room, _BATCH))
                if not rows:
                    break
                self._under_way += 1
                queue.firing += len(rows)
                fires.start_soon(self._fire, name, queue, rows)

    async def _fire(self, name: str, queue: _Queue, rows: list[DueRow]) -> None:
        try:
            backlog = await self._firing.fire(name, rows, self._ownership)
            if backlog is not None:
                queue.backlog = backlog.undelivered
        finally:
            self._under_way -= 1
            queue.firing -= len(rows)
            self._ended.set()

    async def _look(self, name: str, queue: _Queue) -> None:
        try:
            await anyio.sleep(_LOOK_AGAIN_S)
            backlog = await self._firing.backlog(name)
            if backlog is not None:
                queue.backlog = backlog.undelivered
        finally:
            self._looking.discard(name)
            self._ended.set()

    def _blocked(self) -> bool:
        """Something waits that no event will wake: Redis away, or a lease that ran out."""
        return (
            self._under_way == 0
            and not self._looking
            and any(len(q.ready) for q in self._queues.values())
        )

    async def _tell_saturated(self) -> None:
        for queue in self._queues.values():
            queue.ready.has_room_again()
        saturated = frozenset(n for n, q in self._queues.items() if q.ready.saturated)
        if saturated != self._told_saturated and self._context.boxes.prefetcher.offer(
            Saturated(saturated)
        ):
            self._told_saturated = saturated
