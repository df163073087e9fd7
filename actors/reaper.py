"""Finds attempts that nobody will report, so that nothing stays `running` for ever (rule 4).

    lost        its worker's liveness is gone           -> `lost`, by the task's `on_lost`
    timed out   its worker has had it for longer than   -> `timed_out` (the SDK's own timeout comes
                its timeout and some seconds               first; this is for workers that hang)
    vanished    claimed, and neither in the stream nor  -> published again under the same token
                reported: the node died between claim
                and publish, or Redis lost its data

Every outcome goes through the recorder, which compares the token; so a report that comes in between
wins, and nothing here can undo it.
"""

import logging
from uuid import UUID

import msgspec

from duly.actors.context import Context
from duly.actors.messages import Capacity, Outcomes, ReaperMessage
from duly.actors.outcomes import is_token
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox, MailboxClosedError, Reply
from duly.actors.vanished import Vanished
from duly.storage import keys, slots
from duly.storage.claims import Ended, Outcome
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
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
_ANSWER_S = 30.0
_SUSPICION_S = 15.0
_FRESH_S = 1.0


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
        self._redis = Patience("looking after workers", log)
        self._postgres = Patience("reading running tasks", log)
        self._next_rows = 0.0
        self._data_mark: tuple[bytes, bytes | None] | None = None
        self._suspicious_until = 0.0

    async def run(self) -> None:
        clock = self._context.clock
        while not await self.pause(_ROUND_S):
            await self._take_messages()
            try:
                await self._check_data()
                await self._look_at_workers()
                if clock.monotonic() >= self._next_rows:
                    self._next_rows = clock.monotonic() + _ROWS_EVERY_S
                    await self._look_at_old_claims()
            except TROUBLE as error:
                self._context.vitals.redis_error = str(error) or type(error).__name__
                await self.pause(self._redis.failed(error))
            except StoreUnavailableError as error:
                await self.pause(self._postgres.failed(error))
            else:
                self._redis.worked()
                self._postgres.worked()
        await self._take_messages()

    async def _take_messages(self) -> None:
        mailbox: Mailbox[ReaperMessage] = self.mailbox
        while mailbox.depth:
            try:
                for message in await mailbox.receive_batch(8):
                    self._owned = frozenset(message.epochs)
            except MailboxClosedError:
                return
            mailbox.handled()

    async def _check_data(self) -> None:
        """Notice within a second that Redis restarted or lost its data."""
        streams, clock = self._context.streams, self._context.clock
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
            self._suspicious_until = clock.monotonic() + _SUSPICION_S

    # Workers

    async def _look_at_workers(self) -> None:
        streams = self._context.streams
        for queue in await streams.known_queues():
            consumers = await streams.consumers(queue)
            alive = [c for c in consumers if c.alive]
            values = await streams.concurrency([c.id for c in alive])
            total = sum(_concurrency(value) for value in values if value is not None)
            self._context.boxes.dispatcher.offer(Capacity(queue, total))
            for consumer in consumers:
                if not consumer.alive:
                    await self._bury(queue, consumer)

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
        name = consumer.encode(errors="replace").decode().replace("\0", "?")
        ended = [
            Ended(
                id=task_id, token=int(entry.token), outcome=outcome, worker=name,
                started_at=from_us(to_us(now) - entry.idle_ms * 1000), finished_at=now,
                error=f'"{outcome}"',
            )
            for entry in held
            if (task_id := _uuid(entry.id)) is not None and is_token(entry.token)
        ]  # fmt: skip
        count = 0
        if ended:
            reply: Reply[list[bool]] = Reply()
            await self._context.boxes.recorder.send(Outcomes(ended, reply))
            count = sum(await reply.wait(_ANSWER_S))
        # Not before it is recorded: until then the entry is what a new owner would find.
        items = [(entry.entry_id, entry.id, entry.token) for entry in held]
        await self._context.streams.settle_tasks(queue, items)
        return count

    # Old claims

    async def _look_at_old_claims(self) -> None:
        if not self._owned:
            return
        context = self._context
        suspicious = context.clock.monotonic() < self._suspicious_until
        grace_s = _FRESH_S if suspicious else context.options.dispatch_grace_s
        before = from_us(context.clock.now_us() - round(grace_s * 1e6))
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

    async def _look_at(self, rows: list[RunningRow]) -> None:
        context = self._context
        by_queue: dict[str, list[RunningRow]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        for queue, some in by_queue.items():
            for at in range(0, len(some), _PAGE):
                await self._locate(queue, some[at : at + _PAGE])
            context.vitals.republished += await self._vanished.republish(queue)

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
