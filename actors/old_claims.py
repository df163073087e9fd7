"""Looks whether what was claimed some time ago is where it should be: in the stream, and not for too long.

completed   by a transaction of the user, and not   -> recorded
            reported since: its worker is gone
timed out   its worker has had it for longer than   -> `timed_out` (the SDK's own timeout comes
            its timeout and some seconds               first; this is for workers that hang)
vanished    claimed, and neither in the stream nor  -> published again under the same token
            reported: the node died between claim      (vanished.py)
            and publish, or Redis lost its data
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from uuid import UUID

import msgspec

from duly.actors.context import Context
from duly.actors.ending import end, end_held
from duly.actors.outcomes import completed
from duly.actors.tally import Tally
from duly.actors.turns import Turns
from duly.actors.vanished import Vanished
from duly.storage import slots
from duly.storage.claims import Ended
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import RunningRow
from duly.storage.stream_facts import Held
from duly.wheel.durations import from_us

log = logging.getLogger("duly.reaper")

Look = Callable[[str], Awaitable[None]]

_EVERY_S = 2.0
_ROWS = 5_000
_PAGE = 500
_TIMEOUT_SLACK_MS = 5_000
_SUSPICION_S = 15.0
_HURRY_S = 5.0
_FRESH_S = 1.0
_TURN_S = 0.1  # a twentieth of the time until the next look
_TURNS = 4  # each slot within eight seconds


class OldClaims:
    """The running rows of this node's slots, looked at every two seconds; at once after a loss or a gain.

    `guarded(queue, look)` runs `look(queue)` and keeps what is wrong with one queue from the others.
    """

    def __init__(self, context: Context, guarded: Callable[[str, Look], Awaitable[None]]) -> None:
        self._context = context
        self._guarded = guarded
        self._vanished = Vanished(context)
        self._turns = Turns(_TURN_S, _TURNS)
        self._republished = Tally(log, "published %d task(s) again that were in no stream: %s")
        self._next = 0.0
        self._suspicious_until = 0.0
        self._gained_at_us = 0
        self._hurry_until = 0.0

    def gained(self) -> None:
        """Slots were gained. Their owner may have died between a claim and its publication."""
        clock = self._context.clock
        self._gained_at_us = clock.now_us()
        self._hurry_until = clock.monotonic() + _HURRY_S
        self._next = 0.0

    def suspect(self) -> None:
        """Redis lost something: for a while, look at once for what was claimed a moment ago."""
        now = self._context.clock.monotonic()
        self._suspicious_until, self._hurry_until = now + _SUSPICION_S, now + _HURRY_S
        self._next = 0.0

    @property
    def suspicious(self) -> bool:
        """Whether Redis lost something a short while ago."""
        return self._context.clock.monotonic() < self._suspicious_until

    @property
    def hurrying(self) -> bool:
        """Whether every round should look, and rounds be shorter."""
        return self._context.clock.monotonic() < self._hurry_until

    def due(self) -> bool:
        """Whether it is time to look; then the next time is set."""
        now = self._context.clock.monotonic()
        if now < self._next:
            return False
        self._next = now + (0.0 if self.hurrying else _EVERY_S)
        return True

    async def look(self, owned: frozenset[int], known: set[str]) -> None:
        """Look at the running rows of the slots `owned`; `known` are the queues whose names Redis has.

        Raises `StoreUnavailableError`, and what redis-py raises.
        """
        try:
            await self._look(owned, known)
        finally:
            self._republished.tell()

    async def _look(self, owned: frozenset[int], known: set[str]) -> None:
        before = self._before()
        everywhere = self.hurrying or self.suspicious
        turn = sorted(owned) if everywhere else self._turns.take(owned)
        seen: set[tuple[UUID, int]] = set()
        after: RunningRow | None = None
        took_s = 0.0
        while True:
            # Page by page: long runs, however many, must not hide what comes after them.
            db, asked = self._context.db, self._context.clock.monotonic()
            try:
                rows = await slots.running_since(db, turn, before, _ROWS, after)
            except StoreUnavailableError:
                self._turns.failed(turn, took_s + self._context.clock.monotonic() - asked)
                raise
            took_s += self._context.clock.monotonic() - asked
            seen.update((row.id, row.version) for row in rows)
            await self._look_at(rows, known)
            if len(rows) < _ROWS:
                break
            after = rows[-1]
        if not everywhere:
            self._turns.took(turn, took_s)
        self._vanished.keep_only(seen, owned.difference(turn))

    def _before(self) -> datetime:
        """Claims from before this instant should be in the stream by now."""
        clock, grace_s = self._context.clock, self._context.options.dispatch_grace_s
        now_us = clock.now_us()
        fresh_us = now_us - round(_FRESH_S * 1e6)
        if self.suspicious:
            return from_us(fresh_us)
        before_us = now_us - round(grace_s * 1e6)
        if self.hurrying:
            before_us = max(before_us, min(fresh_us, self._gained_at_us))
        return from_us(before_us)

    async def _look_at(self, rows: list[RunningRow], known: set[str]) -> None:
        await self._end_completed(rows)
        by_queue: dict[str, list[RunningRow]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        for queue, some in by_queue.items():
            await self._guarded(queue, partial(self._look_in_queue, rows=some, known=known))

    async def _end_completed(self, rows: list[RunningRow]) -> None:
        now = from_us(self._context.clock.now_us())
        ended = [
            completed(Ended(row.id, row.version, "lost", None, None, now), row.completion)
            for row in rows
            if row.completion is not None
        ]
        await end(self._context, ended)

    async def _look_in_queue(self, queue: str, rows: list[RunningRow], known: set[str]) -> None:
        if queue not in known:
            await self._context.streams.queues.announce(queue)  # its name was lost
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
                ended = await end_held(self._context, queue, place.consumer, [held], "timed_out")
                self._context.vitals.timed_out += ended
                cancel = msgspec.json.encode({"cancel": str(row.id), "token": row.version})
                await streams.signals.tell_worker(place.consumer, cancel)
        await self._vanished.note(queue, absent)
