"""Records what became of each attempt, in batches; the only actor that does.

Outcomes come from the reports streams and, by message, from the API and the reaper. Recorded first,
cleaned up in Redis after: a crash in between repeats a report, whose token is then stale.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

import anyio
from anyio.abc import TaskGroup
from redis.exceptions import ResponseError

from duly.actors import trail, wakes
from duly.actors.context import Context
from duly.actors.messages import Outcomes, Ownership, RecorderMessage
from duly.actors.outcomes import parse_report
from duly.actors.patience import Patience, QueuePatience
from duly.actors.recording import Recorded, record
from duly.actors.refusals import Refusals
from duly.actors.runtime import Actor, MailboxClosedError
from duly.actors.tally import Tally
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.layout import slot_of
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.slots import SLOTS, running_queues
from duly.storage.stream_facts import Report, is_missing
from duly.wheel.durations import from_us

log = logging.getLogger("duly.recorder")

_BLOCK_MS = 1000
_QUEUES_EVERY_S = 5.0
_NEW_QUEUE_S = 1.0  # so soon, if this node has published to a new one
_ORPHAN_IDLE_MS = 10_000
_FINISH_S = 2.0
_TELL_EVERY_S = 10.0
_GATHER_S = 0.008  # of a steady flow, for fewer and larger statements
_MANY = 100
_AT_ONCE_S = 0.002
_HANDLED_AT_ONCE = 2  # pages of reports, so that the node is not idle while one commits
_LEFT_MS = 15_000  # longer than what a dead node had read waits for another

_Done = dict[str, list[tuple[bytes, str | bytes, str | bytes]]]


class Recorder(Actor[RecorderMessage]):
    """Reads every queue's reports while answering messages."""

    name = "recorder"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.recorder)
        self._context = context
        vitals, clock = context.vitals, context.clock
        self._redis = Patience("reading reports", log, vitals.redis)
        self._aside = QueuePatience("reading reports", log, clock.monotonic, vitals.queues)
        self._groups_lost = False
        self._postgres = Patience("recording outcomes", log)
        self._queues: list[str] = []
        self._queues_at = 0.0
        self._running_at = 0.0  # when the store is asked next, while no queue is known
        self._owned: frozenset[int] = frozenset()
        self._orphan_idle_ms = _ORPHAN_IDLE_MS
        self._room = anyio.Semaphore(_HANDLED_AT_ONCE)
        self._emptying = anyio.Lock()
        self._refusals = Refusals(context)
        self._unreadable = Tally(log, "%d unreadable report(s) dropped, of %s")
        self._tell_at = 0.0
        self._slots = frozenset(context.slots)  # of the store
        self._came: frozenset[int] = frozenset()  # slots whose reports may have been passed over
        self._look_at = 0.0
        self._awaited = (
            False  # what was recorded last, by tasks that are held back until others have ended
        )

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_reports, tasks)
            tasks.start_soon(self._refusals.write_on)
            await self._answer_messages()
            # What was read and not recorded, others would find only after a while.
            with anyio.move_on_after(_FINISH_S):
                async with self._all_handled():
                    await self._refusals.write()
            tasks.cancel_scope.cancel()

    # Messages

    async def _answer_messages(self) -> None:
        while True:
            try:
                message = await self.mailbox.receive()
            except MailboxClosedError:
                return
            if isinstance(message, Ownership):
                self._note_ownership(message)
            else:
                await self._answer(message)
            self.mailbox.handled()

    async def _answer(self, message: Outcomes) -> None:
        recorded: set[tuple[UUID, int]] = set()
        try:
            await self._record(message.ended, recorded, reported=message.reported)
        except StoreUnavailableError as error:
            message.reply.fail(error)
        else:
            message.reply.set([(one.id, one.token) in recorded for one in message.ended])

    def _note_ownership(self, message: Ownership) -> None:
        """A gain means that a node is gone: what it had read and not recorded is looked for now."""
        if not self._owned.issuperset(message.epochs):
            self._orphan_idle_ms = min(
                _ORPHAN_IDLE_MS, round(self._context.options.lease_ttl_s * 500)
            )
            self._queues_at = 0.0
        self._owned = frozenset(message.epochs)
        slots = frozenset(self._context.slots)
        self._came = (self._came | slots - self._slots) & slots
        self._slots = slots

    # Streams

    async def _read_reports(self, tasks: TaskGroup) -> None:
        while True:
            try:
                await self._find_queues()
                if self._context.layout is not None:
                    await self._look_for_left()
                if not self._queues:
                    await anyio.sleep(0.2)
                    continue
                asked = self._context.clock.monotonic()
                reports = await self._context.streams.reports.read(self._queues, block_ms=_BLOCK_MS)
                flows = self._context.clock.monotonic() - asked < _AT_ONCE_S
            except TROUBLE as error:
                await anyio.sleep(self._reading_failed(error))
                continue
            self._redis.worked()
            self._groups_lost = False
            if reports:
                await self._room.acquire()
                tasks.start_soon(self._handle_in_room, reports)
                if flows and len(reports) < _MANY and not self._awaited:
                    await anyio.sleep(_GATHER_S)
            self._tell_unreadable()

    def _tell_unreadable(self) -> None:
        """Now and then: whoever writes rubbish to a stream must not fill the log."""
        if (now := self._context.clock.monotonic()) >= self._tell_at:
            self._tell_at = now + _TELL_EVERY_S
            self._unreadable.tell()

    def _reading_failed(self, error: BaseException) -> float:
        """Note it; the seconds to wait before the next try."""
        if is_of_one_queue(error):
            self._queues_at = 0.0  # which queue it is, will show
            return Patience.FIRST_S
        if isinstance(error, ResponseError) and is_missing(error):
            # FLUSHALL, or a stream was deleted, or a queue forgotten: no trouble if it can be mended.
            self._queues_at = 0.0
            if not self._groups_lost:
                self._groups_lost = True
                return Patience.FIRST_S
        return self._redis.failed(error)

    async def _find_queues(self) -> None:
        """Learn the queues, and take over what dead nodes had read and not recorded."""
        clock, streams = self._context.clock, self._context.streams
        early_s = _QUEUES_EVERY_S - _NEW_QUEUE_S if streams.queues.has_new else 0.0
        if clock.monotonic() < self._queues_at - early_s:
            return
        streams.queues.has_new = False
        known = await streams.queues.names()
        unlisted = set(self._queues) - known
        for queue in unlisted:
            streams.queues.forget_announced(queue)
            self._groups_lost = False  # by another node that forgets one queue after another
        listed = frozenset(known)
        if unlisted or (not self._queues and clock.monotonic() >= self._running_at):
            # Forgotten because nothing runs there, or lost with Redis's data: who runs, will report.
            self._running_at = clock.monotonic() + _QUEUES_EVERY_S
            try:
                known |= set(await running_queues(self._context.db, range(SLOTS)))
            except StoreUnavailableError as error:
                self._postgres.failed(error)
                known |= unlisted
                self._running_at = 0.0
        idle_ms, self._orphan_idle_ms = self._orphan_idle_ms, _ORPHAN_IDLE_MS
        try:
            self._queues = [
                one
                for one in sorted(known)
                if await self._is_readable(one, idle_ms, listed=one in listed)
            ]
        except TROUBLE:
            self._orphan_idle_ms = min(idle_ms, self._orphan_idle_ms)
            raise
        self._queues_at = clock.monotonic() + (_QUEUES_EVERY_S if known else 0.5)
        async with self._all_handled():  # what is being handled would come again
            while self._queues:
                again = await streams.reports.read(self._queues, block_ms=0, again=True)
                if not again:
                    break
                await self._handle(again)

    async def _look_for_left(self) -> None:
        """Of several stores: reports that were passed over while their slots came to this one."""
        came = self._came & self._owned
        now = self._context.clock.monotonic()
        if not came and now < self._look_at:
            return
        self._look_at = now + _QUEUES_EVERY_S
        async with self._all_handled():
            for queue in self._queues:
                if came:
                    left = await self._context.streams.reports.unread(queue, 0)
                    left = [one for one in left if _slot(one) in came]
                else:
                    left = await self._context.streams.reports.unread(queue, _LEFT_MS)
                    left = [one for one in left if _slot(one) in self._owned]
                if left:
                    await self._handle(left)
        self._came -= came

    async def _is_readable(self, queue: str, idle_ms: int, *, listed: bool) -> bool:
        """Make its group if need be; False if something else is in the place of its stream.

        False, too, if its name was `listed` and is not any more: another node has forgotten it meanwhile.
        """
        streams = self._context.streams
        if self._aside.pause_s(queue):
            return False
        try:
            await streams.queues.announce_reports(queue)
            await streams.reports.take_over(queue, idle_ms)
        except ResponseError as error:
            if is_missing(error):
                streams.queues.forget_announced(queue)
                if listed and not await streams.queues.is_known(queue):
                    return False
                await streams.queues.announce_reports(queue)
                return True
            if not is_of_one_queue(error):
                raise
            self._aside.failed(queue, error)
            return False
        self._aside.worked(queue)
        return True

    @asynccontextmanager
    async def _all_handled(self) -> AsyncIterator[None]:
        """Wait until all that was read has been handled; nothing more is begun meanwhile."""
        taken = 0
        async with self._emptying:
            try:
                while taken < _HANDLED_AT_ONCE:
                    await self._room.acquire()
                    taken += 1
                yield
            finally:
                for _ in range(taken):
                    self._room.release()

    async def _handle_in_room(self, reports: list[Report]) -> None:
        try:
            await self._handle(reports)
        finally:
            self._room.release()

    async def _handle(self, reports: list[Report]) -> None:
        now = from_us(self._context.clock.now_us())
        ended: list[Ended] = []
        done: _Done = defaultdict(list)
        for report in reports:
            fields = report.fields
            item = (report.entry_id, fields.get(b"id", b""), fields.get(b"token", b""))
            done[report.queue].append(item)
            try:
                ended.append(parse_report(fields, now))
            except ValueError as error:
                self._unreadable.add(report.queue, detail=str(error))
        left = await self._record_surely(ended)
        if left:
            await self._pass_over(done, {str(one.id).encode() for one in left})
        await self._settle_surely(done)

    async def _record_surely(self, ended: list[Ended]) -> list[Ended]:
        """Answers those that were not recorded: their slots are in another store now."""
        recorded: set[tuple[UUID, int]] = set()
        left: list[Ended] = []
        while ended:
            try:
                await self._record(ended, recorded, reported=True)
                return left
            except StoreUnavailableError as error:
                await anyio.sleep(self._postgres.failed(error))
            gone = [
                one
                for one in ended
                if (one.id, one.token) not in recorded and not self._context.holds(one.id)
            ]
            left += gone
            ended = [one for one in ended if one not in gone] if gone else ended
        return left

    async def _pass_over(self, done: _Done, ids: set[bytes]) -> None:
        """Leave the reports of these tasks to the store that has them."""
        for queue, items in done.items():
            gone = [item[0] for item in items if item[1] in ids]
            items[:] = [item for item in items if item[1] not in ids]
            while gone:
                try:
                    await self._context.streams.reports.pass_over(queue, gone)
                    break
                except TROUBLE as error:
                    await anyio.sleep(self._redis.failed(error))

    async def _settle_surely(self, done: _Done) -> None:
        for queue, items in done.items():
            while True:
                try:
                    await self._context.streams.reports.settle(queue, items)
                    break
                except TROUBLE as error:
                    if is_of_one_queue(error):
                        # They stay pending, and are read again (and stale) once it is mended.
                        self._aside.failed(queue, error)
                        self._queues = [one for one in self._queues if one != queue]
                        break
                    await anyio.sleep(self._redis.failed(error))

    async def _record(
        self, ended: Sequence[Ended], recorded: set[tuple[UUID, int]], *, reported: bool
    ) -> None:
        """Record those that are not in `recorded`, and add to it, also when the store fails before the end.

        Try again with the same set then: what is stale is known once all have been tried.
        """
        now: datetime = from_us(self._context.clock.now_us())
        left = [one for one in ended if (one.id, one.token) not in recorded]
        new = Recorded.nothing()
        try:
            await record(self._context.db, left, now, new, self._context.draw_id)
        except StoreUnavailableError:
            recorded |= new.pairs
            await self._follow([one for one in left if (one.id, one.token) in recorded], new)
            raise
        recorded |= new.pairs
        self._postgres.worked()
        self._context.vitals.stale_reports += len(ended) - len(recorded)
        if reported and len(ended) > len(recorded):
            self._refusals.add(ended, recorded)
        await self._follow(left, new)

    async def _follow(self, ended: Sequence[Ended], new: Recorded) -> None:
        """Tell whoever counts, looks on or waits of what was recorded."""
        self._context.meters.ended(new.measured)
        self._context.vitals.recorded += len(new.pairs)
        trail.tell(log, "recorded", new.pairs)
        self._context.feed.tell_ends(ended, new.pairs)
        await wakes.wake(self._context, new.waiting)
        self._awaited = await wakes.freed(self._context, new.freed)


def _slot(report: Report) -> int | None:
    try:
        return slot_of(UUID(report.fields[b"id"].decode()))
    except (LookupError, ValueError):
        return None
