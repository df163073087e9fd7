"""Finds attempts that nobody will report, so that nothing stays `running` for ever (rule 4).

    lost        its worker's liveness is gone           -> `lost`, by the task's `on_lost`
    timed out   its worker has had it for longer than   -> `timed_out` (the SDK's own timeout comes
                its timeout and some seconds               first; this is for workers that hang)
    vanished    claimed, and neither in the stream nor  -> published again under the same token
                reported: the node died between claim
                and publish, or Redis lost its data

While Redis is away, or takes no writes, no worker can show that it lives. So for the life of a
liveness key after any such trouble nobody is taken for dead.

Every outcome goes through the recorder, which compares the token; so a report that comes in between
wins, and nothing here can undo it.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from uuid import UUID

import anyio
import msgspec
from redis.exceptions import ResponseError

from duly.actors.context import Context
from duly.actors.ending import end
from duly.actors.messages import Capacity, ReaperMessage
from duly.actors.outcomes import is_token, worker_name
from duly.actors.patience import Patience, QueuePatience
from duly.actors.runtime import Actor, MailboxClosedError
from duly.actors.tally import Tally
from duly.actors.vanished import Vanished
from duly.storage import keys, slots
from duly.storage.claims import Ended, Outcome
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.slots import RunningRow
from duly.storage.stream_facts import Consumer, Held
from duly.wheel.durations import from_us, to_us

log = logging.getLogger("duly.reaper")

_ROUND_S = 1.0
_ROWS_EVERY_S = 2.0
_ROWS = 5_000
_PAGE = 500
_TIMEOUT_SLACK_MS = 5_000
_FORGET_IDLE_MS = 60_000
_SUSPICION_S = 15.0
_HURRY_S = 5.0
_FRESH_S = 1.0
_FORGET_QUEUE_S = 600.0
_STALL_S = 3.0  # an answer that takes longer is of a Redis that stood still


class _Liveness(msgspec.Struct):
    concurrency: int = 1


class Reaper(Actor[ReaperMessage]):
    """Looks at workers every second, and at old claims every two."""

    name = "reaper"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.reaper)
        self._context = context
        self._owned: frozenset[int] = frozenset()
        self._vanished = Vanished(context)
        self._lost = Tally(log, "%d stream(s) lost, so looking at every running task: %s")
        self._republished = Tally(log, "published %d task(s) again that were in no stream: %s")
        vitals, clock = context.vitals, context.clock
        self._redis = Patience("looking after workers", log, vitals.redis)
        self._restoring = Patience("restoring vanished tasks", log, vitals.redis)
        self._queues = QueuePatience("looking after", log, clock.monotonic, vitals.queues)
        self._marks: dict[str, frozenset[str]] = {}
        self._known: set[str] = set()
        self._deserted: dict[str, float] = {}  # queue without workers -> since when
        self._trusted_from = clock.monotonic() + _ttl_s()
        self._postgres = Patience("reading running tasks", log)
        self._next_rows = 0.0
        self._data_mark: tuple[bytes, bytes | None] | None = None
        self._suspicious_until = 0.0
        self._gained_at_us = 0
        self._hurry_until = 0.0

    async def run(self) -> None:
        clock = self._context.clock
        while not await self._wait():
            try:
                began = clock.monotonic()
                await self._check_data()
                self._note_stall(began)
                await self._look_at_workers()
            except TROUBLE as error:
                self._distrust()
                await self.pause(self._redis.failed(error))
            except StoreUnavailableError as error:
                await self.pause(self._postgres.failed(error))
            else:
                self._redis.worked()
                if clock.monotonic() >= self._next_rows:
                    self._next_rows = clock.monotonic() + self._rows_every_s()
                    await self._try_old_claims()

    async def _wait(self) -> bool:
        """Until the next round is due, or slots were gained; answers whether a stop began."""
        round_s = _ROUND_S / 2 if self._hurrying else _ROUND_S
        with anyio.move_on_after(round_s):
            gained = False
            while not gained:
                try:
                    messages = await self.mailbox.receive_batch(8)
                except MailboxClosedError:
                    return True
                gained = not self._owned.issuperset(messages[-1].epochs)
                self._owned = frozenset(messages[-1].epochs)
                self.mailbox.handled()
            self._note_gain()
        return self.stopping.is_set()

    def _note_gain(self) -> None:
        """The owner before may have died between a claim and its publication: look at once."""
        clock = self._context.clock
        self._gained_at_us = clock.now_us()
        self._hurry_until = clock.monotonic() + _HURRY_S
        self._next_rows = 0.0

    @property
    def _hurrying(self) -> bool:
        return self._context.clock.monotonic() < self._hurry_until

    async def _check_data(self) -> None:
        """Notice within a second that Redis restarted or lost its data."""
        streams = self._context.streams
        mark = await streams.data_mark()
        if mark[1] is None:
            await streams.set_sentinel()
            mark = await streams.data_mark()
        # Another node may have put the new sentinel: then it differs from the one we knew.
        lost = self._data_mark is not None and mark != self._data_mark
        self._data_mark = mark
        if lost:
            log.warning("Redis restarted or lost its data: looking at every running task")
            streams.forget_announced()
            self._distrust()
            self._suspect()

    def _note_stall(self, began: float) -> None:
        """So long after it was sent, an answer may be that of a Redis that stood still meanwhile."""
        if self._context.clock.monotonic() - began > _STALL_S:
            self._distrust()

    def _distrust(self) -> None:
        """Take nobody for dead before whoever lives has had the time to show it."""
        self._trusted_from = self._context.clock.monotonic() + _ttl_s()

    def _suspect(self) -> None:
        """For a while, look at once for what was claimed a moment ago."""
        now = self._context.clock.monotonic()
        self._suspicious_until, self._hurry_until = now + _SUSPICION_S, now + _HURRY_S
        self._next_rows = 0.0

    def _rows_every_s(self) -> float:
        if self._hurrying:
            return 0.0
        return _ROWS_EVERY_S

    # Workers

    async def _look_at_workers(self) -> None:
        self._known = await self._context.streams.known_queues()
        try:
            for queue in list(self._known):
                await self._guarded(queue, self._look_at_crew)
        finally:
            self._lost.tell()
        # Also what another node forgot: it may come back.
        self._marks = {queue: marks for queue, marks in self._marks.items() if queue in self._known}
        self._deserted = {q: since for q, since in self._deserted.items() if q in self._known}

    async def _guarded(self, queue: str, look: Callable[[str], Awaitable[None]]) -> None:
        """Keep what is wrong with the keys of one queue from the others."""
        if self._queues.pause_s(queue):
            return
        try:
            await look(queue)
        except ResponseError as error:
            if not is_of_one_queue(error):
                raise
            self._queues.failed(queue, error)

    async def _look_at_crew(self, queue: str) -> None:
        began = self._context.clock.monotonic()
        crew = await self._context.streams.crew(queue)
        self._note_stall(began)
        if self._queues.failing(queue):
            await self._context.streams.check_queue(queue)
            self._queues.worked(queue)
        before = self._marks.get(queue)
        self._marks[queue] = crew.marks
        if before is not None and not before & crew.marks:
            self._lost.add(queue)
            self._suspect()
        total = sum(_concurrency(one.sign) for one in crew.workers if one.sign is not None)
        self._context.boxes.dispatcher.offer(Capacity(queue, total))
        if self._context.clock.monotonic() >= self._trusted_from:
            for one in crew.workers:
                if one.sign is None:
                    await self._bury(queue, one)
        await self._forget_if_deserted(queue, not crew.workers)

    async def _forget_if_deserted(self, queue: str, deserted: bool) -> None:
        now = self._context.clock.monotonic()
        since = self._deserted.setdefault(queue, now)
        if deserted and now - since < _FORGET_QUEUE_S:
            return
        del self._deserted[queue]
        if deserted and await self._context.streams.forget_queue(queue):
            log.info("forgot queue %s: empty, and no worker for %d s", queue, now - since)
            self._known.discard(queue)

    async def _bury(self, queue: str, consumer: Consumer) -> None:
        streams = self._context.streams
        if consumer.pending == 0:
            if consumer.idle_ms > _FORGET_IDLE_MS:
                await streams.forget_worker(queue, consumer.id)
            return
        held = await streams.held_by(queue, consumer.id, keys.LIVENESS_TTL_MS, _PAGE)
        if held:
            log.warning("worker %s is gone with %d tasks of %s", consumer.id, len(held), queue)
            self._context.vitals.lost += await self._end(queue, consumer.id, held, "lost")

    async def _end(self, queue: str, consumer: str, held: list[Held], outcome: Outcome) -> int:
        """Record the outcome of these entries, then take them out of the stream."""
        now = from_us(self._context.clock.now_us())
        name = worker_name(consumer.encode(errors="replace"))
        ended = [
            Ended(
                id=task_id, token=int(entry.token), outcome=outcome, worker=name,
                started_at=from_us(to_us(now) - entry.idle_ms * 1000), finished_at=now,
                error=f'"{outcome}"',
            )
            for entry in held
            if (task_id := _uuid(entry.id)) is not None and is_token(entry.token)
        ]  # fmt: skip
        count = await end(self._context, ended)
        # Not before it is recorded: until then the entry is what a new owner would find.
        items = [(entry.entry_id, entry.id, entry.token) for entry in held]
        await self._context.streams.settle_tasks(queue, items)
        return count

    # Old claims

    async def _try_old_claims(self) -> None:
        """Apart from the workers: where Redis is full, those can be read and these not restored."""
        try:
            await self._look_at_old_claims()
        except TROUBLE as error:
            self._distrust()
            await self.pause(self._restoring.failed(error))
        except StoreUnavailableError as error:
            await self.pause(self._postgres.failed(error))
        finally:
            self._republished.tell()

    async def _look_at_old_claims(self) -> None:
        if not self._owned:
            self._restoring.worked()  # whoever owns the slots now shows whether it does
            return
        context = self._context
        before = self._looked_at_before()
        seen: set[tuple[UUID, int]] = set()
        after: RunningRow | None = None
        while True:
            # Page by page: long runs, however many, must not hide what comes after them.
            rows = await slots.running_since(context.db, sorted(self._owned), before, _ROWS, after)
            seen.update((row.id, row.version) for row in rows)
            await self._look_at(rows)
            if len(rows) < _ROWS:
                break
            after = rows[-1]
        self._vanished.keep_only(seen)
        self._restoring.worked()
        self._postgres.worked()

    def _looked_at_before(self) -> datetime:
        """Claims from before this instant should be in the stream by now."""
        clock, grace_s = self._context.clock, self._context.options.dispatch_grace_s
        now, now_us = clock.monotonic(), clock.now_us()
        fresh_us = now_us - round(_FRESH_S * 1e6)
        if now < self._suspicious_until:
            return from_us(fresh_us)
        before_us = now_us - round(grace_s * 1e6)
        if self._hurrying:
            before_us = max(before_us, min(fresh_us, self._gained_at_us))
        return from_us(before_us)

    async def _look_at(self, rows: list[RunningRow]) -> None:
        by_queue: dict[str, list[RunningRow]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        for queue, some in by_queue.items():
            await self._guarded(queue, partial(self._look_in_queue, rows=some))

    async def _look_in_queue(self, queue: str, rows: list[RunningRow]) -> None:
        if queue not in self._known:
            await self._context.streams.announce(queue)  # its name was lost
        for at in range(0, len(rows), _PAGE):
            await self._locate(queue, rows[at : at + _PAGE])
        count = await self._vanished.republish(queue)
        self._context.vitals.republished += count
        self._republished.add(queue, count)

    async def _locate(self, queue: str, rows: list[RunningRow]) -> None:
        streams = self._context.streams
        places = await streams.locate(queue, [(row.id, row.version) for row in rows])
        absent: list[RunningRow] = []
        for row, place in zip(rows, places, strict=True):
            if not place.entry_id:
                absent.append(row)
            elif place.consumer and place.idle_ms > row.timeout * 1000 + _TIMEOUT_SLACK_MS:
                held = Held(place.entry_id, str(row.id), str(row.version), place.idle_ms)
                ended = await self._end(queue, place.consumer, [held], "timed_out")
                self._context.vitals.timed_out += ended
                cancel = msgspec.json.encode({"cancel": str(row.id), "token": row.version})
                await streams.tell_worker(place.consumer, cancel)
        await self._vanished.note(queue, absent)


def _ttl_s() -> float:
    return keys.LIVENESS_TTL_MS / 1000


def _concurrency(value: bytes) -> int:
    try:
        return max(0, msgspec.json.decode(value, type=_Liveness).concurrency)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 1  # a foreign worker's own idea of liveness


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
