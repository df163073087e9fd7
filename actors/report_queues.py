"""Which queues' reports a node reads: those that are known, those of which tasks run, and what others left there."""

import logging
from collections.abc import AsyncGenerator
from uuid import UUID

from redis.exceptions import ResponseError

from duly.actors.context import Context
from duly.actors.messages import Ownership
from duly.actors.patience import Patience, QueuePatience
from duly.storage.errors import StoreUnavailableError
from duly.storage.layout import slot_of
from duly.storage.redis import TROUBLE, is_of_one_queue
from duly.storage.slots import SLOTS, running_queues
from duly.storage.stream_facts import Report, is_missing

log = logging.getLogger("duly.recorder")

_EVERY_S = 5.0
_NEW_QUEUE_S = 1.0  # so soon, if this node has published to a new one
_ORPHAN_IDLE_MS = 10_000
_LEFT_MS = 15_000  # longer than what a dead node had read waits for another


class ReportQueues:
    """Methods raise `redis.TROUBLE`, unless it is the trouble of one queue: that is put aside for a while."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.names: list[str] = []
        """The queues to read, but for those that were put aside."""
        self._aside = QueuePatience(
            "reading reports", log, context.clock.monotonic, context.vitals.queues
        )
        self._store = Patience("looking for queues of which tasks run", log)
        self._find_at = 0.0
        self._running_at = 0.0  # when the store is asked next, while no queue is known
        self._groups_lost = False
        self._owned: frozenset[int] = frozenset()
        self._orphan_idle_ms = _ORPHAN_IDLE_MS
        self._slots = frozenset(context.slots)  # of the store
        self._came: frozenset[int] = frozenset()  # slots whose reports may have been passed over
        self._look_at = 0.0

    # What is told to it

    def look_again(self) -> None:
        """Something has changed: `find` looks anew."""
        self._find_at = 0.0

    def put_aside(self, queue: str, error: BaseException) -> None:
        """Something else is in the place of its stream: its reports stay pending until that is mended."""
        self._aside.failed(queue, error)
        self.names = [one for one in self.names if one != queue]

    def worked(self) -> None:
        """All of them could be read."""
        self._groups_lost = False

    def can_be_mended(self, error: BaseException) -> bool:
        """Whether reading failed because of one queue, or of a group that `find` makes again, and has not just made."""
        if is_of_one_queue(error):
            self.look_again()  # which queue it is, will show
            return True
        if isinstance(error, ResponseError) and is_missing(error):
            # FLUSHALL, or a stream was deleted, or a queue forgotten: no trouble if it can be mended.
            self.look_again()
            if not self._groups_lost:
                self._groups_lost = True
                return True
        return False

    def note_ownership(self, message: Ownership) -> None:
        """A gain means that a node is gone: what it had read and not recorded is looked for now."""
        if not self._owned.issuperset(message.epochs):
            self._orphan_idle_ms = min(
                _ORPHAN_IDLE_MS, round(self._context.options.lease_ttl_s * 500)
            )
            self.look_again()
        self._owned = frozenset(message.epochs)
        slots = frozenset(self._context.slots)
        self._came = (self._came | slots - self._slots) & slots
        self._slots = slots

    # What it finds

    async def find(self) -> bool:
        """Learn the queues, and take over what dead nodes had read and not recorded; False: it was not time yet.

        If it was, this node's own pending reports are to be read again.
        """
        clock, streams = self._context.clock, self._context.streams
        early_s = _EVERY_S - _NEW_QUEUE_S if streams.queues.has_new else 0.0
        if clock.monotonic() < self._find_at - early_s:
            return False
        streams.queues.has_new = False
        known = await streams.queues.names()
        unlisted = set(self.names) - known
        for queue in unlisted:
            streams.queues.forget_announced(queue)
            self._groups_lost = False  # by another node that forgets one queue after another
        listed = frozenset(known)
        if unlisted or (not self.names and clock.monotonic() >= self._running_at):
            # Forgotten because nothing runs there, or lost with Redis's data: who runs, will report.
            self._running_at = clock.monotonic() + _EVERY_S
            try:
                known |= set(await running_queues(self._context.db, range(SLOTS)))
                self._store.worked()
            except StoreUnavailableError as error:
                self._store.failed(error)
                known |= unlisted
                self._running_at = 0.0
        idle_ms, self._orphan_idle_ms = self._orphan_idle_ms, _ORPHAN_IDLE_MS
        try:
            self.names = [
                one
                for one in sorted(known)
                if await self._is_readable(one, idle_ms, listed=one in listed)
            ]
        except TROUBLE:
            self._orphan_idle_ms = min(idle_ms, self._orphan_idle_ms)
            raise
        self._find_at = clock.monotonic() + (_EVERY_S if known else 0.5)
        return True

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

    @property
    def may_have_left(self) -> bool:
        """Of several stores: whether it is time to look for reports that were passed over.

        They were while their slots came to this store.
        """
        if self._context.layout is None:
            return False
        came = self._came & self._owned
        return bool(came) or self._context.clock.monotonic() >= self._look_at

    async def left(self) -> AsyncGenerator[list[Report], None]:
        """These reports, by queue. Those of slots that came are looked for until all were answered once."""
        came = self._came & self._owned
        self._look_at = self._context.clock.monotonic() + _EVERY_S
        reports = self._context.streams.reports
        for queue in self.names:
            if came:
                left = [one for one in await reports.unread(queue, 0) if _slot(one) in came]
            else:
                left = await reports.unread(queue, _LEFT_MS)
                left = [one for one in left if _slot(one) in self._owned]
            if left:
                yield left
        self._came -= came


def _slot(report: Report) -> int | None:
    try:
        return slot_of(UUID(report.fields[b"id"].decode()))
    except (LookupError, ValueError):
        return None
