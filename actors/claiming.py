"""Claims the tasks of a batch; after a claim in doubt it reads back which of them are ours."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import anyio

from duly.actors import wakes
from duly.actors.context import Context
from duly.actors.messages import Missed, Ownership, Refused
from duly.actors.patience import Patience
from duly.storage import claims
from duly.storage.claims import Claim, Claimed, Held
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import DueRow
from duly.wheel.durations import from_us

log = logging.getLogger("duly.dispatcher")

_REFUSED_S = 0.1  # by then an Ownership should have come that says which slots are gone

_IN_TURN = 50
"""Tasks with a concurrency key that one statement claims at most: it holds a lock for each key."""


class Tried(NamedTuple):
    """What became of a claim."""

    claimed: list[Claimed]
    again: list[DueRow]
    """What should be tried again at once."""
    held: Mapping[UUID, Held] = MappingProxyType({})


class Claiming:
    """Knows whether claims fail; `mended` is called when they work again."""

    def __init__(self, context: Context, mended: Callable[[], None]) -> None:
        self._context = context
        self._mended = mended
        self._postgres = Patience("claiming tasks", log)
        self._refused = False  # by the last claim

    @property
    def fails(self) -> bool:
        """Nobody should wait for what this node would claim."""
        return self._postgres.failing or self._refused

    async def claim(self, rows: list[DueRow], own: Ownership, limited: str | None) -> Tried:
        """Those that have to be counted apart: no other pays for it. `limited`: the queue, if all have."""
        plain = [row for row in rows if row.concurrency_key is None and limited is None]
        counted = [row for row in rows if row.concurrency_key is not None or limited is not None]
        in_turn = partial(claims.claim_in_turn, queue=limited)
        tried = await self._by(claims.claim, plain, own) if plain else Tried([], [])
        for at in range(0, len(counted), _IN_TURN):
            more = await self._by(in_turn, counted[at : at + _IN_TURN], own)
            tried = Tried(
                tried.claimed + more.claimed, tried.again + more.again, {**tried.held, **more.held}
            )
        return tried

    async def _by(
        self, claim_rows: Callable[..., Awaitable[Claim]], rows: list[DueRow], own: Ownership
    ) -> Tried:
        """What this node has claimed now, and what it should try again."""
        context = self._context
        now = from_us(context.clock.now_us())
        try:
            claim = await claim_rows(context.db, context.node_id, rows, dict(own.epochs), now)
        except StoreUnavailableError as error:
            if not error.in_doubt:
                await anyio.sleep(self._postgres.failed(error))
                return Tried([], rows)
            return await self._read_back(rows, now, error)
        self._works()
        context.vitals.claimed += len(claim.tasks)
        if not claim.owned:
            if not self._refused:
                log.warning("claims are refused: slots have a new owner")
            self._refused = True
            context.boxes.leases.offer(Refused())
            await anyio.sleep(_REFUSED_S)
            return Tried([], rows)
        self._refused = False
        if len(claim.tasks) + len(claim.held) == len(rows):
            return Tried(claim.tasks, [], claim.held)
        return await self._without_missing(rows, claim, now)

    async def _without_missing(self, rows: list[DueRow], claim: Claim, now: datetime) -> Tried:
        """Not claimed though its slot is ours and there was room for it.

        Cancelled, changed or paused meanwhile; or too late for its misfire grace; or one that it waited for did
        not complete; or periodic, and more occurrences than this one are due.
        """
        claimed = {task.id for task in claim.tasks}
        missing = [row for row in rows if row.id not in claimed and row.id not in claim.held]
        # The room that was counted for it is there for others of its key and queue.
        keys = {row.concurrency_key for row in missing}
        again = [
            row
            for row in rows
            if claim.held.get(row.id) == "queue_full"
            or (claim.held.get(row.id) == "full" and row.concurrency_key in keys)
        ]
        held = {i: why for i, why in claim.held.items() if i not in {row.id for row in again}}
        try:
            gone = await claims.expire(self._context.db, missing, now, self._context.draw_id)
        except StoreUnavailableError as error:
            self._postgres.failed(error)
            return Tried(claim.tasks, missing + again, held)
        self._context.meters.skipped(len(gone.ids))
        self._context.feed.tell("skipped", gone.ids)
        await wakes.wake(self._context, gone.waiting)
        if len(gone.ids) < len(missing):
            # A full mailbox: the sweep brings them again.
            left = {row.id for row in missing}.difference(gone.ids)
            self._context.boxes.catchup.offer(Missed(sorted(left)))
        return Tried(claim.tasks, again, held)

    async def _read_back(
        self, rows: list[DueRow], now: datetime, error: StoreUnavailableError
    ) -> Tried:
        """The claim may have committed. Find out, as long as it takes."""
        doubt = error
        while True:
            await anyio.sleep(self._postgres.failed(error))
            try:
                await doubt.settled()
                found = await claims.claimed_by(self._context.db, self._context.node_id, rows, now)
            except StoreUnavailableError as again:
                error = again
                continue
            self._works()
            ours = {task.id for task in found}
            return Tried(found, [row for row in rows if row.id not in ours])

    async def still_running(self, tasks: list[Claimed]) -> list[Claimed]:
        """What has ended since must not be published: perhaps only an answer was lost."""
        while True:
            try:
                found = await claims.running(
                    self._context.db, [(task.id, task.token) for task in tasks]
                )
            except StoreUnavailableError as error:
                await anyio.sleep(self._postgres.failed(error))
                continue
            self._works()
            return found

    def _works(self) -> None:
        if self._postgres.failing:
            self._mended()
        self._postgres.worked()
