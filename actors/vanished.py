"""Tasks that are claimed and neither in the stream nor reported.

A worker's report and the removal of its entry are one step, and a node removes a report only once
it is recorded. So if an entry is absent, and later every report that was added up to that moment
has been recorded, and the row still runs under the same token, then nobody has it: it is published
again, under that token.

Unless its start was confirmed: no second worker would be granted it. If Redis lost its data, whoever
began it may still report, so it is `lost` only when its timeout is over.
"""

from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from duly.actors.context import Context
from duly.actors.ending import end
from duly.actors.firing import SURE_S
from duly.storage import claims
from duly.storage import tasks as stored
from duly.storage.claims import Claimed, Ended
from duly.storage.layout import slot_of
from duly.storage.slots import RunningRow
from duly.wheel.durations import from_us

_PAGE = 200
_TIMEOUT_SLACK_S = 5.0


class _Absent(NamedTuple):
    queue: str
    mark: tuple[int, int]
    """The newest report there was when the entry was seen to be absent."""


class Vanished:
    """What was absent when last looked at."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._absent: dict[tuple[UUID, int], _Absent] = {}
        self._again: dict[str, list[tuple[UUID, int]]] = {}

    def keep_only(self, running: set[tuple[UUID, int]], elsewhere: frozenset[int]) -> None:
        """Forget what does not run any more, but for what is in the slots `elsewhere`, which were not looked at."""
        self._absent = {
            pair: seen
            for pair, seen in self._absent.items()
            if pair in running or slot_of(pair[0]) in elsewhere
        }

    async def note(self, queue: str, rows: list[RunningRow]) -> None:
        """These were just looked for in the stream and are not there."""
        if not rows:
            return
        # If its name is lost, no node reads its reports; then what explains the absence stays unread.
        await self._context.streams.queues.announce(queue)
        # Read after the look: any report that explains an absence is not newer than `newest`.
        oldest, newest = await self._context.streams.reports.mark(queue)
        for row in rows:
            pair = (row.id, row.version)
            seen = self._absent.get(pair)
            if seen is None:
                self._absent[pair] = _Absent(queue, _id(newest))
            elif oldest is None or _id(oldest) > seen.mark:
                self._again.setdefault(queue, []).append(pair)

    async def republish(self, queue: str) -> int:
        """Publish again what is surely nobody's; answers how many."""
        pairs = self._again.pop(queue, [])
        count = 0
        for at in range(0, len(pairs), _PAGE):
            asked = self._context.clock.monotonic()
            tasks = await claims.running(self._context.db, pairs[at : at + _PAGE])
            tasks = await self._without_begun(tasks)
            if self._context.clock.monotonic() - asked > SURE_S:
                continue  # others may have published and recorded it since: to be looked at again
            if tasks:
                await self._context.streams.publish(queue, tasks)
                count += len(tasks)
            for pair in pairs[at : at + _PAGE]:
                self._absent.pop(pair, None)
        return count

    async def _without_begun(self, tasks: list[Claimed]) -> list[Claimed]:
        """Those that may start; ends those whose confirmed start was too long ago."""
        confirmed = [task.id for task in tasks if task.on_lost == "fail"]
        if not confirmed:
            return tasks
        now = from_us(self._context.clock.now_us())
        rows = await stored.get(self._context.db, confirmed)
        begun = {one.id for one in rows.values() if one.started_at is not None}
        lost = [
            Ended(
                row.id, row.version, "lost", row.worker, row.started_at, now, error='"lost"'
            )
            for row in rows.values()
            if row.started_at is not None and row.status == "running"
            and now - row.started_at > timedelta(seconds=row.timeout + _TIMEOUT_SLACK_S)
        ]  # fmt: skip
        self._context.vitals.lost += await end(self._context, lost)
        return [task for task in tasks if task.id not in begun]


def _id(entry_id: bytes) -> tuple[int, int]:
    ms, _, number = entry_id.partition(b"-")
    return int(ms), int(number)
