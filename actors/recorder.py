"""Records what became of each attempt, in batches; the only actor that does.

Outcomes come from the reports streams (of which queues, `ReportQueues` knows) and, by message, from
the API and the reaper. Recorded first, cleaned up in Redis after: a crash in between repeats a
report, whose token is then stale.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from uuid import UUID

import anyio
from anyio.abc import TaskGroup

from duly.actors import trail, wakes
from duly.actors.context import Context
from duly.actors.messages import Outcomes, Ownership, RecorderMessage
from duly.actors.outcomes import parse_report
from duly.actors.patience import Patience
from duly.actors.recording import Recorded, record
from duly.actors.refusals import Refusals
from duly.actors.report_queues import ReportQueues
from duly.actors.runtime import Actor, MailboxClosedError
from duly.actors.tally import Tally
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.stream_facts import Report
from duly.wheel.durations import from_us

log = logging.getLogger("duly.recorder")

_BLOCK_MS = 1000
_FINISH_S = 2.0
_TELL_EVERY_S = 10.0
_GATHER_S = 0.008  # of a steady flow, for fewer and larger statements
_MANY = 100
_AT_ONCE_S = 0.002
_HANDLED_AT_ONCE = 2  # pages of reports, so that the node is not idle while one commits

_Done = dict[str, list[tuple[bytes, str | bytes, str | bytes]]]


class Recorder(Actor[RecorderMessage]):
    """Reads every queue's reports while answering messages."""

    name = "recorder"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.recorder)
        self._context = context
        self._queues = ReportQueues(context)
        self._redis = Patience("reading reports", log, context.vitals.redis)
        self._postgres = Patience("recording outcomes", log)
        self._room = anyio.Semaphore(_HANDLED_AT_ONCE)
        self._emptying = anyio.Lock()
        self._refusals = Refusals(context)
        self._unreadable = Tally(log, "%d unreadable report(s) dropped, of %s")
        self._tell_at = 0.0
        self._awaited = False
        """Whether tasks that are held back until others have ended wait for what was recorded last."""

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
                self._queues.note_ownership(message)
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

    # Streams

    async def _read_reports(self, tasks: TaskGroup) -> None:
        while True:
            try:
                if await self._queues.find():
                    await self._read_again()
                if self._queues.may_have_left:
                    await self._record_left()
                if not self._queues.names:
                    await anyio.sleep(0.2)
                    continue
                asked = self._context.clock.monotonic()
                streams = self._context.streams
                reports = await streams.reports.read(self._queues.names, block_ms=_BLOCK_MS)
                flows = self._context.clock.monotonic() - asked < _AT_ONCE_S
            except TROUBLE as error:
                mended = self._queues.can_be_mended(error)
                await anyio.sleep(Patience.FIRST_S if mended else self._redis.failed(error))
                continue
            self._redis.worked()
            self._queues.worked()
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

    async def _read_again(self) -> None:
        """What this node has read and not recorded, or taken over."""
        async with self._all_handled():  # what is being handled would come again
            while names := self._queues.names:
                again = await self._context.streams.reports.read(names, block_ms=0, again=True)
                if not again:
                    break
                await self._handle(again)

    async def _record_left(self) -> None:
        async with self._all_handled(), aclosing(self._queues.left()) as parts:
            async for left in parts:
                await self._handle(left)

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
                        self._queues.put_aside(queue, error)
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
