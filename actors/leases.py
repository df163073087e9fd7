"""Holds this node's slots: leases in Redis, and for each gain a higher epoch in PostgreSQL.

Which slots should be its own follows from the set of live nodes alone (assignment). A node first
gives up what is no longer its own, then takes what is free of what is.

A slot is acted on only while its lease is surely valid by this process's monotonic clock: counted
from before the request was sent, less drift, less a safety margin. What is lost is given up at
once; what was refused is not tried again before the next round.
"""

import logging
import os
import socket
from typing import NoReturn

import anyio
import msgspec

from duly.actors.assignment import assign
from duly.actors.context import Context
from duly.actors.messages import Ownership
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox
from duly.storage import slots
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us

log = logging.getLogger("duly.leases")

_MARGIN_S = 0.5
_SILENCE_S = 10.0


class LeaseActor(Actor[NoReturn]):
    """Renews, takes what is free, and tells the others."""

    name = "leases"

    def __init__(self, context: Context) -> None:
        super().__init__(Mailbox("leases", 1))
        self._context = context
        self._servers = context.lease_servers
        self._epochs: dict[int, int] = {}
        self._valid_until = 0.0
        started_at = from_us(context.clock.now_us())
        self._info = msgspec.json.encode(
            {"host": socket.gethostname(), "pid": os.getpid(), "started_at": started_at}
        )
        self._look_now = anyio.Event()
        self._mine: frozenset[int] = frozenset()
        self._members = Patience("registering in Redis", log)
        self._redis = Patience("renewing leases", log)
        self._postgres = Patience("raising slot epochs", log)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hear)
            try:
                while not self.stopping.is_set():
                    self._look_now = anyio.Event()
                    await self._round()
                    await self._wait()
            finally:
                self._context.vitals.owned_slots = 0
            tasks.cancel_scope.cancel()

    async def _wait(self) -> None:
        """Until the next renewal is due, or slots have become free, or the stop."""
        with anyio.move_on_after(self._context.options.lease_renew_s):
            async with anyio.create_task_group() as waiting:
                for event in (self.stopping, self._look_now):
                    waiting.start_soon(_cancel_after, event, waiting.cancel_scope)

    async def _hear(self) -> None:
        """Look around at once when another node gave slots up."""
        patience = Patience("listening for free slots", log)
        while True:
            try:
                async with self._context.members.changes() as next_message:
                    patience.worked()
                    while True:
                        if await next_message(_SILENCE_S) is not None:
                            self._look_now.set()
            except TROUBLE as error:
                await anyio.sleep(patience.failed(error))

    async def stopped(self) -> None:
        """Hand over: the others have stopped acting on these slots."""
        try:
            await self._context.members.leave()
        except TROUBLE as error:
            log.info("cannot withdraw from Redis: %s", error)  # the TTL does it
        await self._servers.release(list(range(slots.SLOTS)))
        await self._announce()

    async def _announce(self) -> None:
        try:
            await self._context.members.announce()
        except TROUBLE as error:
            log.info("cannot announce free slots: %s", error)  # the others look by themselves

    async def _round(self) -> None:
        await self._look_around()
        await self._give_up()
        await self._renew()
        await self._take()
        vitals = self._context.vitals
        if self._epochs and self._context.clock.monotonic() >= self._valid_until:
            self._epochs = {}
        vitals.owned_slots, vitals.lease_valid_until = len(self._epochs), self._valid_until
        await self._tell()

    async def _look_around(self) -> None:
        """Beat, and learn which slots should be this node's. Without Redis nothing changes."""
        try:
            live = await self._context.members.beat(self._info)
        except TROUBLE as error:
            self._members.failed(error)
            return
        self._members.worked()
        owners = assign(slots.SLOTS, live)
        self._mine = frozenset(s for s, node in owners.items() if node == self._context.node_id)

    async def _give_up(self) -> None:
        surplus = sorted(set(self._epochs) - self._mine)
        if surplus:
            self._epochs = {s: e for s, e in self._epochs.items() if s in self._mine}
            await self._tell()  # before the release: nobody here acts on them any more
            await self._servers.release(surplus)
            await self._announce()
            log.info("gave up %d slots, owning %d", len(surplus), len(self._epochs))

    async def _renew(self) -> None:
        if not self._epochs:
            return
        sent = self._context.clock.monotonic()
        held = await self._servers.renew(sorted(self._epochs))
        if held.servers_answered < self._servers.majority:
            # Nothing is lost yet: the leases live on until their time is over.
            self._redis.failed(TimeoutError("no majority of the lease servers answers"))
            self._context.vitals.redis_error = "no majority of the lease servers answers"
            return
        self._redis.worked()
        self._context.vitals.redis_error = None
        lost = set(self._epochs) - held.slots
        if lost:
            log.warning("lost %d slots", len(lost))
            self._epochs = {s: e for s, e in self._epochs.items() if s in held.slots}
        self._valid_until = sent + held.valid_s - _MARGIN_S

    async def _take(self) -> None:
        wanted = sorted(self._mine - set(self._epochs))
        if not wanted:
            return
        sent = self._context.clock.monotonic()
        held = await self._servers.take(wanted)
        if held.servers_answered < self._servers.majority:
            self._redis.failed(TimeoutError("no majority of the lease servers answers"))
            self._context.vitals.redis_error = "no majority of the lease servers answers"
            return
        self._redis.worked()
        self._context.vitals.redis_error = None
        if not held.slots:
            return
        try:
            now = from_us(self._context.clock.now_us())
            epochs = await slots.take(
                self._context.db, sorted(held.slots), self._context.node_id, now
            )
        except StoreUnavailableError as error:
            self._postgres.failed(error)
            await self._servers.release(sorted(held.slots))
            return
        self._postgres.worked()
        valid_until = sent + held.valid_s - _MARGIN_S
        if self._context.clock.monotonic() >= valid_until:
            # Slower than the lease's own life: not to be used.
            await self._servers.release(sorted(held.slots))
            return
        self._valid_until = min(self._valid_until, valid_until) if self._epochs else valid_until
        self._epochs.update(epochs)
        log.info("took %d slots, owning %d", len(epochs), len(self._epochs))

    async def _tell(self) -> None:
        boxes = self._context.boxes
        ownership = Ownership(dict(self._epochs), self._valid_until)
        # Newest wins and comes again each second: a full mailbox may miss one, not wait for room.
        for box in (boxes.ticker, boxes.dispatcher, boxes.prefetcher, boxes.reaper):
            box.offer(ownership)


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
