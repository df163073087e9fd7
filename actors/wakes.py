"""Tells the owner of a slot about a task that falls due within its horizon, and all nodes of freed keys.

A wake may be lost (a full mailbox, Redis away): the owner's sweep finds the task all the same, and a key
that waits is looked at after a while.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

import anyio
import msgspec

from duly.actors.context import Context
from duly.actors.messages import Freed, Schedule
from duly.storage.redis import TROUBLE
from duly.storage.slots import DueRow
from duly.storage.tasks import Waiting
from duly.wheel.durations import to_us

_PATIENCE_S = 0.5

_encoder = msgspec.json.Encoder()


class FreedKeys(msgspec.Struct):
    """Concurrency keys and limited queues of attempts whose end `node` recorded."""

    node: str
    freed: list[str]
    queues: list[str] = []


_decoder = msgspec.json.Decoder(list[DueRow] | FreedKeys)


async def wake(context: Context, waiting: Iterable[Waiting]) -> None:
    """Pass on those of these tasks that are due within the horizon, to whoever owns their slots."""
    until_us = context.clock.now_us() + round(context.options.horizon_s * 1_000_000)
    by_owner: dict[str, list[DueRow]] = defaultdict(list)
    for task in waiting:
        if task.slot_owner is not None and to_us(task.due.next_run_at) < until_us:
            by_owner[task.slot_owner].append(task.due)
    mine = by_owner.pop(context.node_id, None)
    if mine:
        context.boxes.ticker.offer(Schedule(mine))
    # Whoever calls has more to do: a Redis that does not answer must not hold it up for long.
    with anyio.move_on_after(_PATIENCE_S):
        for owner, rows in by_owner.items():
            try:
                await context.streams.signals.wake(owner, _encoder.encode(rows))
            except TROUBLE:
                return  # the sweep finds them


async def freed(context: Context, attempts: Iterable[tuple[str, str | None]]) -> bool:
    """Tell every node that attempts of these (queue, concurrency key) have ended.

    As far as others may wait for it: there is a key, or the queue has `max_in_flight`. Answers whether there is
    any such.
    """
    some = set(attempts)
    keys = frozenset(key for _, key in some if key is not None)
    controls = context.controls
    queues = frozenset(queue for queue, _ in some if controls.of(queue).max_in_flight is not None)
    if not keys and not queues:
        return False
    context.boxes.dispatcher.offer(Freed(keys, queues))
    message = _encoder.encode(FreedKeys(context.node_id, sorted(keys), sorted(queues)))
    with anyio.move_on_after(_PATIENCE_S), suppress(*TROUBLE):  # they look anyway
        await context.streams.signals.tell_freed(message)
    return True


def decode(message: bytes) -> list[DueRow] | FreedKeys:
    """Read a message of either kind. Raises msgspec.DecodeError."""
    said = _decoder.decode(message)
    if isinstance(said, list) and any(row.next_run_at.tzinfo is None for row in said):
        raise msgspec.ValidationError("a time without an offset")
    return said
