"""Finds attempts that nobody will report, so that nothing stays `running` for ever (rule 4).

    lost        its worker's liveness is gone           -> `lost`, by the task's `on_lost`
    timed out, or vanished from its stream              -> old_claims.py

While Redis is away, or takes no writes, no worker can show that it lives. So for the life of a
liveness key after any such trouble nobody is taken for dead.

Every outcome goes through the recorder, which compares the token; so a report that comes in between
wins, and nothing here can undo it.
"""

import logging

import msgspec
from redis.exceptions import ResponseError

from duly.actors.context import Context
from duly.actors.ending import end_held
from duly.actors.messages import Capacity, ReaperMessage
from duly.actors.old_claims import Look, OldClaims
from duly.actors.patience import Patience, QueuePatience
from duly.actors.runtime import Actor, MailboxClosedError
from duly.actors.tally import Tally
from duly.storage import keys
from duly.storage.data_marks import DataMarks
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.stream_facts import Consumer

log = logging.getLogger("duly.reaper")

_ROUND_S = 1.0
_PAGE = 500
_FORGET_IDLE_MS = 60_000
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
        self._claims = OldClaims(context, self._guarded)
        self._lost = Tally(log, "%d stream(s) lost, so looking at every running task: %s")
        vitals, clock = context.vitals, context.clock
        self._redis = Patience("looking after workers", log, vitals.redis)
        self._restoring = Patience("restoring vanished tasks", log, vitals.redis)
        self._queues = QueuePatience("looking after", log, clock.monotonic, vitals.queues)
        self._marks: dict[str, frozenset[str]] = {}
        self._known: set[str] = set()
        self._deserted: dict[str, float] = {}  # queue without workers -> since when
        self._trusted_from = clock.monotonic() + _ttl_s()
        self._postgres = Patience("reading running tasks", log)
        self._data: DataMarks | None = None

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
                if self._claims.due():
                    await self._try_old_claims()

    async def _wait(self) -> bool:
        """Until the next round is due, or slots were gained; answers whether a stop began."""
        monotonic = self._context.clock.monotonic
        until = monotonic() + (_ROUND_S / 2 if self._claims.hurrying else _ROUND_S)
        while (left_s := until - monotonic()) > 0:
            try:
                messages = await self.mailbox.receive_batch(8, left_s)
            except MailboxClosedError:
                return True
            if messages:
                gained = not self._owned.issuperset(messages[-1].epochs)
                self._owned = frozenset(messages[-1].epochs)
                self.mailbox.handled()
                if gained:
                    self._claims.gained()
                    break
        return self.stopping.is_set()

    async def _check_data(self) -> None:
        """Notice within a second that Redis restarted or lost its data."""
        streams = self._context.streams
        now, before = await streams.data_marks(), self._data
        # Another node may have put the new sentinel: then it differs from the one we knew.
        lost = before is not None and now.lost_since(before)
        if before is not None and before.away - now.away:
            self._distrust()  # nobody could show its life there
        self._data = now.kept_from(before)
        if lost:
            log.warning("Redis restarted or lost its data: looking at every running task")
            streams.queues.forget_announced()
            self._distrust()
            self._claims.suspect()

    def _note_stall(self, began: float) -> None:
        """So long after it was sent, an answer may be that of a Redis that stood still meanwhile."""
        if self._context.clock.monotonic() - began > _STALL_S:
            self._distrust()

    def _distrust(self) -> None:
        """Take nobody for dead before whoever lives has had the time to show it."""
        self._trusted_from = self._context.clock.monotonic() + _ttl_s()

    # Workers

    async def _look_at_workers(self) -> None:
        self._known = await self._context.streams.queues.names()
        try:
            for queue in list(self._known):
                await self._guarded(queue, self._look_at_crew)
        finally:
            self._lost.tell()
        # Also what another node forgot: it may come back.
        self._marks = {queue: marks for queue, marks in self._marks.items() if queue in self._known}
        self._deserted = {q: since for q, since in self._deserted.items() if q in self._known}

    async def _guarded(self, queue: str, look: Look) -> None:
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
        crew = await self._context.streams.crews.of(queue)
        self._note_stall(began)
        if not crew.marks:
            self._known.discard(queue)
            return
        if self._queues.failing(queue):
            await self._context.streams.queues.check(queue)
            self._queues.worked(queue)
        before = self._marks.get(queue)
        self._marks[queue] = crew.marks
        if before is not None and not before & crew.marks:
            self._lost.add(queue)
            self._claims.suspect()
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
        if deserted and await self._context.streams.queues.forget(queue):
            log.info("forgot queue %s: empty, and no worker for %d s", queue, now - since)
            self._known.discard(queue)

    async def _bury(self, queue: str, consumer: Consumer) -> None:
        streams = self._context.streams
        if consumer.pending == 0:
            if consumer.idle_ms > _FORGET_IDLE_MS:
                await streams.crews.forget_worker(queue, consumer.id)
            return
        held = await streams.crews.held_by(queue, consumer.id, keys.LIVENESS_TTL_MS, _PAGE)
        if held:
            log.warning("worker %s is gone with %d tasks of %s", consumer.id, len(held), queue)
            self._context.vitals.lost += await end_held(
                self._context, queue, consumer.id, held, "lost"
            )

    # Old claims

    async def _try_old_claims(self) -> None:
        """Apart from the workers: where Redis is full, those can be read and these not restored."""
        if not self._owned:
            self._restoring.worked()  # whoever owns the slots now shows whether it does
            return
        try:
            await self._claims.look(self._owned, self._known)
        except TROUBLE as error:
            self._distrust()
            await self.pause(self._restoring.failed(error))
        except StoreUnavailableError as error:
            await self.pause(self._postgres.failed(error))
        else:
            self._restoring.worked()
            self._postgres.worked()


def _ttl_s() -> float:
    return keys.LIVENESS_TTL_MS / 1000


def _concurrency(value: bytes) -> int:
    try:
        return max(0, msgspec.json.decode(value, type=_Liveness).concurrency)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 1  # a foreign worker's own idea of liveness
