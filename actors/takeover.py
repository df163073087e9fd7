"""Takes slots over: first their leases, then, which alone decides, their rows in PostgreSQL.

Two things can stand between a lease and its slot:

    a young lease server   may have forgotten that another node holds the lease. Then only slots that
                           nobody else has owned since we did are taken; the rest waits for a TTL
    a paused old owner     its claim may hold the slot's row for ever, if the answer is larger than
                           what the network buffers: its sessions are ended
"""

import logging
from collections.abc import Callable, Sequence

import anyio

from duly.actors.context import Context
from duly.actors.patience import Patience
from duly.storage import slots
from duly.storage.errors import StoreUnavailableError
from duly.storage.leases import Held
from duly.wheel.durations import from_us

log = logging.getLogger("duly.leases")

MARGIN_S = 0.5
"""A lease is used up to this long before its end."""

_LOOK_S = 0.02  # between looks at rows that a claim holds
_LOCKED_S = 0.5  # a claim takes milliseconds: what holds a slot for longer is stuck
_GIVE_UP_S = 1.5  # until the next look, which also gives up what others should have

Gained = Callable[[dict[int, int], float], None]
"""Is told slot -> epoch as soon as they are ours, and until when by the monotonic clock."""


class TakeOver:
    """Takes what it is asked for as far as it is to be had."""

    def __init__(self, context: Context, gained: Gained) -> None:
        self._context = context
        self._gained = gained
        self._postgres = Patience("raising slot epochs", log)

    async def take(self, wanted: Sequence[int]) -> int | None:
        """Take those of `wanted` that are free.

        Answers how many lease servers answered; None if there was no use in asking them.
        """
        context = self._context
        try:
            states = await slots.states(context.db, wanted)
        except StoreUnavailableError as error:
            self._postgres.failed(error)
            return None
        ours = {slot for slot, state in states.items() if state.owner in (None, context.node_id)}
        sent = context.clock.monotonic()
        held = await context.lease_servers.take(wanted, ours)
        if held.slots:
            epochs = await self._raise_epochs(held, sent + held.valid_s - MARGIN_S)
            await context.lease_servers.release(sorted(held.slots - epochs.keys()))
        return held.servers_answered

    async def _raise_epochs(self, held: Held, valid_until: float) -> dict[int, int]:
        context = self._context
        owned: dict[int, int] = {}
        left = sorted(held.slots)
        began = context.clock.monotonic()
        end_at, give_up_at = began + _LOCKED_S, began + _GIVE_UP_S
        try:
            while left and context.clock.monotonic() < give_up_at:
                now = from_us(context.clock.now_us())
                young = sorted(held.young.intersection(left))
                taken = await slots.take(context.db, left, context.node_id, now, young)
                if context.clock.monotonic() >= valid_until:
                    return owned  # these now came later than the lease's own life: not to be used
                owned |= taken.epochs
                if taken.epochs:
                    self._gained(taken.epochs, valid_until)
                left = sorted(taken.busy)
                if left and context.clock.monotonic() >= end_at:
                    await self._end_sessions(taken.busy)
                    end_at = context.clock.monotonic() + _LOCKED_S
                if left:
                    await anyio.sleep(_LOOK_S)
        except StoreUnavailableError as error:
            self._postgres.failed(error)
        else:
            self._postgres.worked()
        return owned

    async def _end_sessions(self, busy: dict[int, str | None]) -> None:
        owners = sorted({owner for owner in busy.values() if owner} - {self._context.node_id})
        ended = await slots.end_sessions(self._context.db, owners, _LOCKED_S)
        if ended:
            log.warning("ended %d sessions of %s that held slots", ended, ", ".join(owners))
