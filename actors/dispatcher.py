"""Claims what is due and publishes it: PostgreSQL first, then Redis, never the other way round.

The stream is a short conveyor. Per queue the dispatcher publishes only while the backlog that no
worker has fetched is below a window (see `line`). What waits for capacity waits here, unclaimed, by
priority and due time; so cancel, pause and change still win. The nodes share a queue's room by the
same order. Of a queue with a rate, a batch asks Redis first how much of it may go now; it takes its
rows only when it knows.

A queue that has more due than fits here is *saturated*: the prefetcher leaves what is due of it in
the store, and brings the best of it whenever there is room. A paused queue with anything due is
treated as one that has no room: nothing of it is kept here, and nothing of it is asked for.
"""

import logging
import math
from collections import deque
from collections.abc import Iterable
from functools import partial

import anyio
import anyio.abc

from duly.actors.context import Context
from duly.actors.firing import Firing
from duly.actors.holds import Holds
from duly.actors.line import Line
from duly.actors.messages import (
    Capacity,
    Controlled,
    DispatcherMessage,
    Due,
    Freed,
    Ownership,
    Refilled,
    Sought,
)
from duly.actors.ready import ReadyQueue, full_of
from duly.actors.runtime import Actor, MailboxClosedError
from duly.actors.saturation import Saturation
from duly.storage.ids import from_bytes
from duly.storage.permits import Rate
from duly.storage.slots import SLOTS, DueRow
from duly.storage.stream_facts import NOTHING_WAITS
from duly.storage.sweeps import Name, unknown

log = logging.getLogger("duly.dispatcher")

_BATCH = 200
_AT_ONCE = 4  # claims under way, so that the node is not idle while one commits
_MESSAGES = 2
_WAIT_S = 30.0
_HEAR_S = 1.5  # after an outage: by then every node has noticed its end, and has its slots again


class Dispatcher(Actor[DispatcherMessage]):
    """Never waits for one queue while another could go on; queues take turns."""

    name = "dispatcher"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.dispatcher)
        self._context = context
        self._queues: dict[str, Line] = {}
        self._turns: deque[str] = deque()  # the queues that have something ready
        self._saturation = Saturation(context, self._queues)
        self._holds = Holds(context.clock.monotonic, self._queues, self._take_turns)
        self._ownership = Ownership({}, 0.0)
        self._slots_lost = False
        self._slots_back_at = float("-inf")
        self._firing = Firing(context)
        self._probing = False
        self._under_way = 0

    async def run(self) -> None:
        async with anyio.create_task_group() as fires:
            while True:
                # Nothing below yields but the wait itself: so no end of a fire is overlooked.
                self._holds.look()
                self._pump(fires)
                self._saturation.tell()
                try:
                    # None come if a fire ended meanwhile.
                    messages = await self.mailbox.receive_batch(_MESSAGES, self._wait_s())
                except MailboxClosedError:
                    break
                for message in messages:
                    self._take(message)
                self.mailbox.handled()
                ready = sum(len(self._queues[name].ready) for name in self._turns)
                self._context.vitals.ready_entries = ready
        # Leaving the task group waited for what was claimed to be published.

    def _wait_s(self) -> float:
        """Until something changes of which no message and no end of a fire will tell."""
        wait_s = _WAIT_S
        # A lease that ran out ends with a message; Redis being back does not.
        if self._firing.redis_fails:
            wait_s = min(wait_s, self._firing.redis_pause_s() or wait_s)
        now = self._context.clock.monotonic()
        for name in self._turns:
            pause_s = max(self._firing.pause_s(name), self._pace_pause_s(name, now))
            wait_s = min(wait_s, pause_s or wait_s)
        return self._holds.wait_s(self._saturation.wait_s(wait_s))

    # Messages

    def _take(self, message: DispatcherMessage) -> None:
        if isinstance(message, Due):
            rows = (row for row in message.rows if not self._firing.is_under_way(row.id))
            self._add(rows, brought=message.brought)
        elif isinstance(message, Sought):
            message.reply.set(unknown(message.names, self._knows))
        elif isinstance(message, Capacity):
            if message.concurrency or message.queue in self._queues:
                self._queue(message.queue).concurrency = message.concurrency
                self._forget_if_idle(message.queue)
        elif isinstance(message, Refilled):
            self._refilled(message)
        elif isinstance(message, Freed):
            self._holds.freed(message)
        elif isinstance(message, Controlled):  # at which the pump looks
            self._holds.controlled()
        else:
            before, self._ownership = self._ownership, message
            if self._slots_lost and message.epochs:
                self._slots_back_at = self._context.clock.monotonic()
            self._slots_lost = not message.epochs and bool(before.epochs or self._slots_lost)
            if before.epochs.keys() - message.epochs.keys():
                for queue in self._queues.values():
                    queue.ready.keep_slots(frozenset(message.epochs))

    def _knows(self, queue: str, name: Name) -> bool:
        task_id = from_bytes(name[0])
        if self._firing.is_under_way(task_id):
            return True
        line = self._queues.get(queue)
        return line is not None and line.ready.knows(task_id, name[1])

    def _queue(self, name: str) -> Line:
        if name not in self._queues:
            floor = self._context.options.window_floor
            monotonic = self._context.clock.monotonic
            self._queues[name] = Line(floor, monotonic, lambda: full_of(len(self._turns)))
        return self._queues[name]

    def _add(self, rows: Iterable[DueRow], *, brought: bool = False, again: bool = False) -> None:
        paused = self._context.controls.paused
        for row in rows:
            ready = self._queue(row.queue).ready
            if row.queue in paused:
                self._leave_to_store(row.queue, ready)
                continue
            if not len(ready) and row.queue not in self._turns:
                self._turns.append(row.queue)
            ready.add(row, brought=brought, again=again)
            if ready.saturated or ready.saturated_keys:
                self._saturation.note(row.queue)

    def _refilled(self, message: Refilled) -> None:
        ready = self._queue(message.queue).ready
        if message.key is None:
            ready.refilled(message.complete, message.last, message.until_us)
        else:
            ready.key_refilled(message.key, message.complete)
        self._take_turns(message.queue)
        self._saturation.note(message.queue)
        self._forget_if_idle(message.queue)

    def _take_turns(self, name: str) -> None:
        """A queue may have something in line that had not."""
        if len(self._queues[name].ready) and name not in self._turns:
            self._turns.append(name)

    def _leave_to_store(self, name: str, ready: ReadyQueue) -> None:
        ready.leave_to_store()
        self._saturation.note(name)

    def _forget_if_idle(self, name: str) -> None:
        known = self._saturation.includes(name) or name in self._turns
        if self._queues[name].idle and not known:
            del self._queues[name]

    # Firing

    def _pump(self, fires: anyio.abc.TaskGroup) -> None:
        """Start what there is room for; each queue in turn, one batch at a time."""
        if self._firing.redis_fails:
            if not self._probing and not self._firing.redis_pause_s():
                self._probing = True
                fires.start_soon(self._probe)
            return
        if self._context.clock.monotonic() >= self._ownership.valid_until:
            return
        without_room = 0
        while self._under_way - self._firing.held_back < _AT_ONCE and without_room < len(
            self._turns
        ):
            name = self._turns.popleft()
            queue = self._queues[name]
            if name in self._context.controls.paused:
                self._leave_to_store(name, queue.ready)
            if not len(queue.ready):
                self._forget_if_idle(name)
                continue
            self._turns.append(name)
            without_room = 0 if self._start(fires, name, queue) else without_room + 1

    def _start(self, fires: anyio.abc.TaskGroup, name: str, queue: Line) -> bool:
        """Fire a batch of a queue, or look how its backlog goes; answers whether it fired."""
        if self._firing.pause_s(name) or queue.asking:
            return False
        if self._pace_pause_s(name, self._context.clock.monotonic()):
            return False
        room = queue.room if queue.is_our_turn(self._others_to_hear()) else 0
        if self._is_limited(name):
            if queue.in_flight.blocked or queue.firing:
                return False
            room = min(room, queue.in_flight.allowance)
        pace = self._context.controls.of(name).pace
        if room > 0 and pace is not None:
            wanted = min(room, _BATCH, pace.at_once, len(queue.ready))
            self._under_way += 1
            queue.firing += wanted  # it takes room, too
            queue.asking = True
            fires.start_soon(self._ask, name, queue, pace, wanted)
        elif room > 0:
            rows = queue.take(min(room, _BATCH))
            self._under_way += 1
            queue.firing += len(rows)
            queue.look_s = 0.0
            fires.start_soon(self._fire, name, queue, rows)
        elif not queue.looking and not queue.firing:  # else the publication tells the backlog
            queue.looking = True
            fires.start_soon(self._look, name, queue)
        return room > 0

    def _is_limited(self, name: str) -> bool:
        return self._context.controls.of(name).max_in_flight is not None

    def _say(self, queue: Line, publishing: int = 0) -> int:
        """What this node says of a queue: nothing, if it could not claim what it speaks of."""
        return NOTHING_WAITS if self._firing.claims_fail else queue.waiting(publishing)

    def _others_to_hear(self) -> int:
        """How many other nodes should have spoken before this one uses what room there is.

        They notice the end of an outage at different moments. How many there are at least, this
        node's share of the slots tells.
        """
        back_at = max(self._slots_back_at, self._firing.mended_at)
        if self._context.clock.monotonic() >= back_at + _HEAR_S:
            return 0
        return math.ceil(SLOTS / (len(self._ownership.epochs) + 1)) - 1

    async def _fire(
        self, name: str, queue: Line, rows: list[DueRow], pace: Rate | None = None
    ) -> int:
        """Answers how many were claimed."""
        try:
            say = partial(self._say, queue, len(rows))
            limited = self._is_limited(name)
            fired = await self._firing.fire(name, rows, self._ownership, say, pace, limited=limited)
            queue.went_out(fired.claimed)
            if fired.backlog is not None:
                queue.told(fired.backlog)
            self._holds.tried(name, rows, fired.held, limited=limited)
            self._saturation.note(name)
            owned = self._ownership.epochs
            self._add((row for row in fired.unclaimed if row.slot in owned), again=True)
            return fired.claimed
        finally:
            self._under_way -= 1
            queue.firing -= len(rows)
            self.mailbox.nudge()

    def _pace_pause_s(self, name: str, now: float) -> float:
        """Seconds until permits of a queue with a rate should be asked for again; 0 = now."""
        return self._queues[name].pace_pause_s(self._context.controls.of(name).pace, now)

    async def _ask(self, name: str, queue: Line, pace: Rate, wanted: int) -> None:
        """Fire as much of a batch as the queue's rate allows now."""
        try:
            grant = await self._firing.ask(name, pace, queue.ready.ranks(wanted))
        finally:
            self._under_way -= 1
            queue.firing -= wanted
            queue.asking = False
            self.mailbox.nudge()
        if grant is None:
            return
        now, claimed = self._context.clock.monotonic(), 0
        queue.granted(grant, now)
        if grant.permits and now < self._ownership.valid_until:
            rows = queue.take(grant.permits)
            self._under_way += 1
            queue.firing += len(rows)
            claimed = await self._fire(name, queue, rows, pace)
        if claimed < grant.permits:
            await self._firing.give_back(name, pace, grant.permits - claimed)
            queue.gave_back()
            self.mailbox.nudge()

    async def _probe(self) -> None:
        try:
            await self._firing.probe()
        finally:
            self._probing = False
            self.mailbox.nudge()

    async def _look(self, name: str, queue: Line) -> None:
        try:
            await anyio.sleep(queue.look_s)
            backlog = await self._firing.backlog(name, partial(self._say, queue))
            if backlog is not None:
                queue.looked(backlog)
        finally:
            queue.looking = False
            self.mailbox.nudge()
