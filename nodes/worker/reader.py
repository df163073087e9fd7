"""Takes tasks from the streams, never more than there are free slots, and starts them.

    wait for room ─▶ XREADGROUP ─▶ HMGET inflight ─▶ start, or drop what was superseded

With more free slots than queues, one blocking call asks each queue for its share. With fewer, the
queues are asked in turn without blocking, beginning after the one served last; only when all are
empty does one call wait on all of them. Should that one bring more than fits, because two queues
filled in the same instant, the surplus goes back at once.

A read whose answer was lost may have delivered entries that nobody here knows. So after each
failure, and now and then as a matter of course, the worker asks for all that is pending under its
name and takes in what it does not know (*audit*). What is pending at the very start belongs to an
earlier life of a worker with this id; it may have been begun, so it is reported as lost.

A queue whose own keys are at fault is set aside, and tried again now and then; the others go on. What
was delivered of it and not begun stays pending for the audit.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from duly.actors.patience import Patience, QueuePatience
from duly.nodes.worker import outcomes
from duly.nodes.worker.reporter import Reporter
from duly.nodes.worker.run import now_ms
from duly.nodes.worker.runner import Runner
from duly.nodes.worker.waiting import wait_for
from duly.storage.conveyor import (
    Conveyor,
    Delivery,
    Entry,
    GroupMissingError,
    Unreadable,
)
from duly.storage.redis import TROUBLE, PrimaryAwayError, is_of_one_queue

log = logging.getLogger("duly.worker")

BLOCK_MS = 2_000
"""How long one read waits for tasks."""

AUDIT_EVERY_S = 10.0
"""How often the worker compares what it holds with what is pending under its name."""

UNBLOCK_EVERY_S = 0.05
"""How often a stopping worker asks for the end of a blocked read."""


class Reader:
    """The reading loop of one worker."""

    def __init__(
        self,
        conveyor: Conveyor,
        queues: Sequence[str],
        runner: Runner,
        reporter: Reporter,
        beat: Callable[[], Coroutine[Any, Any, None]],
        wake: asyncio.Event,
    ) -> None:
        """`beat` renews the liveness key; `wake` is set whenever room may have appeared."""
        self._conveyor = conveyor
        self._queues = list(queues)
        self._runner = runner
        self._reporter = reporter
        self._beat = beat
        self._wake = wake
        self._closing = asyncio.Event()
        self._audit_at_s = 0.0
        self._aside = QueuePatience("reading tasks", log, time.monotonic)

    async def prepare(self) -> None:
        """Make the groups, and report as lost what an earlier life of this worker left pending.

        Raises one of `TROUBLE`.
        """
        for queue in self._queues:
            try:
                await self._conveyor.create_group(queue)
                left = await self._conveyor.pending(queue)
                found = await self._conveyor.fetch(queue, left)
            except ResponseError as error:
                self._set_aside(queue, error)
            else:
                for one in found:
                    self._report_lost(one)

    async def run(self) -> None:
        """Read and start tasks until `close`."""
        patience = Patience("reading tasks", log)
        self._audit_at_s = time.monotonic() + AUDIT_EVERY_S
        while not self._closing.is_set():
            if self._runner.free <= 0 or self._reporter.full:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                if patience.failing:
                    # First show that we live, lest a node take our entries for a dead worker's.
                    # Where the key's primary is away, nodes take us for living.
                    with contextlib.suppress(PrimaryAwayError):
                        await self._beat()
                queues = await self._sound(anew=patience.failing)
                if not queues:
                    pause_s = min(map(self._aside.pause_s, self._queues))
                    await wait_for(self._closing, max(Patience.FIRST_S, pause_s))
                    continue
                if time.monotonic() >= self._audit_at_s:
                    await self._audit(queues)
                    continue
                found = await self._read(queues, self._runner.free)
            except (GroupMissingError, *TROUBLE) as error:
                self._audit_at_s = 0.0
                await wait_for(self._closing, patience.failed(error))
            else:
                patience.worked()
                await self._begin(found)
        for queue in self._queues:
            try:
                await self._audit([queue])  # gives back what the last read may have left unseen
            except (GroupMissingError, *TROUBLE) as error:
                log.debug("cannot look for unseen entries: %s", error)
                if not (isinstance(error, GroupMissingError) or is_of_one_queue(error)):
                    break  # the others would wait as long for no answer

    def close(self) -> None:
        """End `run` after what is under way: an answer cut off might hold entries."""
        self._closing.set()
        self._wake.set()

    async def closed(self, reading: asyncio.Task[None]) -> None:
        """Wait for the end of `run`, which is the task `reading`, without sitting out its wait."""
        while not reading.done():
            try:
                await self._conveyor.unblock()
            except TROUBLE as error:
                log.debug("cannot end the blocked read early: %s", error)
            await asyncio.wait([reading], timeout=UNBLOCK_EVERY_S)

    # Reading

    async def _sound(self, *, anew: bool) -> list[str]:
        """The queues to read now. `anew`: make every group, and find whose keys are at fault."""
        for queue in self._queues:
            failing = self._aside.failing(queue)
            if self._aside.pause_s(queue) or not (anew or failing):
                continue
            try:
                await self._conveyor.check_queue(queue)
            except ResponseError as error:
                self._set_aside(queue, error)
            else:
                if failing:
                    self._aside.worked(queue)
                    self._audit_at_s = 0.0
        return [
            queue
            for queue in self._queues
            if not (self._aside.failing(queue) or self._reporter.is_stuck(queue))
        ]

    def _set_aside(self, queue: str, error: ResponseError) -> None:
        if not is_of_one_queue(error):
            raise error
        self._aside.failed(queue, error)

    async def _read(self, queues: list[str], room: int) -> list[Delivery]:
        if room >= len(queues):
            return await self._conveyor.read(queues, room // len(queues), BLOCK_MS)
        for start in range(0, len(queues), room):
            turn = queues[start : start + room]
            found = await self._conveyor.read(turn, 1, 0)
            if found:
                served = {delivery.queue for delivery in found}
                self._queues = [q for q in self._queues if q not in served] + sorted(served)
                return found
        return await self._conveyor.read(queues, 1, BLOCK_MS)

    async def _audit(self, queues: Sequence[str]) -> None:
        known = self._runner.entries() | self._reporter.entries()
        for queue in queues:
            pending = await self._conveyor.pending(queue)
            unknown = [entry_id for entry_id in pending if (queue, entry_id) not in known]
            await self._begin(await self._conveyor.fetch(queue, unknown))
        self._audit_at_s = time.monotonic() + AUDIT_EVERY_S

    # Starting

    async def _begin(self, found: Iterable[Delivery]) -> None:
        """Start what is still wanted; whatever happens, each entry ends up in some hand."""
        entries: dict[str, list[Entry]] = {}
        for delivery in found:
            if isinstance(delivery, Unreadable):
                self._refuse(delivery)
            else:
                entries.setdefault(delivery.queue, []).append(delivery)
        for queue, batch in entries.items():
            self._runner.expect(batch)
            for entry, token in zip(batch, await self._tokens(queue, batch), strict=False):
                if token == b"%d" % entry.token or self._closing.is_set():
                    self._runner.start(entry)
                else:
                    self._reporter.drop(queue, entry.entry_id)
            self._runner.expect(())

    async def _tokens(self, queue: str, batch: list[Entry]) -> list[bytes | None]:
        patience = Patience("checking tokens", log)
        while not self._closing.is_set():
            try:
                return await self._conveyor.tokens(queue, [entry.id for entry in batch])
            except TROUBLE as error:
                if is_of_one_queue(error):
                    self._aside.failed(queue, error)
                    return []  # they stay pending until the audit after it is mended
                await wait_for(self._closing, patience.failed(error))
        return [None] * len(batch)  # closing: the runner gives them back unseen

    def _refuse(self, delivery: Unreadable) -> None:
        log.error("dropped entry %s of queue %s: %s", delivery.entry_id.decode(), delivery.queue,
                  delivery.reason)  # fmt: skip
        self._reporter.drop(delivery.queue, delivery.entry_id)

    def _report_lost(self, found: Delivery) -> None:
        if isinstance(found, Unreadable):
            self._refuse(found)
            return
        text = "the worker ended in the middle and was started again"
        lost = outcomes.failure("worker_lost", text, retry=not found.confirm)
        at_ms = now_ms()
        self._reporter.report(found, lost, at_ms, at_ms)
