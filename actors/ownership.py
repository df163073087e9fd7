"""Who owns the slots in truth: who is so in PostgreSQL, and holds the lease in Redis.

An owner in PostgreSQL whose lease is gone claims nothing any more; one that holds a lease and is not
the owner in PostgreSQL is about to take the slot over.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from duly.actors.context import Context
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us


class Known(NamedTuple):
    """Of a slot in PostgreSQL."""

    slot: int
    owner: str | None
    free_since: datetime | None


class Owner(NamedTuple):
    """Of a slot. Without one (`id` None): the last one, and since when it is gone, if that is known."""

    id: str | None
    last: str | None = None
    since: datetime | None = None


async def owners(context: Context, known: Sequence[Known]) -> dict[int, Owner] | None:
    """Slot -> its owner; None if no majority of the lease servers answers."""
    holders = await context.lease_servers.holders([one.slot for one in known])
    if holders is None:
        return None
    gone: dict[str, datetime | None] = {}
    found: dict[int, Owner] = {}
    for slot, owner, free_since in known:
        if owner is None:
            found[slot] = Owner(None, None, free_since)
        elif holders.get(slot) == owner:
            found[slot] = Owner(owner)
        else:
            if owner not in gone:
                gone[owner] = await _gone_since(context, owner)
            found[slot] = Owner(None, owner, gone[owner])
    return found


async def _gone_since(context: Context, node_id: str) -> datetime | None:
    """When a node was last heard of; None if it lives, or nobody knows."""
    try:
        silent_s = await context.members.silent_s(node_id)
    except TROUBLE:
        return None  # it is only told less: who asks about Redis itself learns that it is away
    if silent_s is None or silent_s < context.options.lease_ttl_s:
        return None
    return from_us(context.clock.now_us()) - timedelta(seconds=silent_s)
