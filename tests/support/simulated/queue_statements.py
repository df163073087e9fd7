"""What the statements of storage/sql/queues.sql do, on a `Store`."""

from datetime import datetime, timedelta
from typing import Any

from simulated.statements import pick
from simulated.store import Row, Store, statement

_CONTROL = (
    "queue", "paused", "paused_by", "paused_at", "rate", "burst", "max_in_flight", "updated_at",
    "updated_by",
)  # fmt: skip


@statement
def queue_controls(store: Store) -> list[Row]:
    return [dict(row) for row in store.queues.values()]


@statement
def control_queue(
    store: Store, queue: str, paused: bool | None, set_rate: bool, rate: Any, set_burst: bool,
    burst: Any, set_in_flight: bool, in_flight: Any, now: datetime, who: str | None,
) -> list[Row]:  # fmt: skip
    row = dict(
        store.queues.get(queue) or {**dict.fromkeys(_CONTROL), "queue": queue, "paused": False}
    )
    if paused is not None and paused != row["paused"]:
        row |= {"paused": paused, "paused_by": who if paused else None}
        row["paused_at"] = now if paused else None
    if set_rate:
        row["rate"] = None if rate is None else float(rate)
    if set_burst:
        row["burst"] = burst
    if set_in_flight:
        row["max_in_flight"] = in_flight
    if row["updated_at"] is not None:
        now = max(now, row["updated_at"] + timedelta(microseconds=1))
    store.queues[queue] = {**row, "updated_at": now, "updated_by": who}
    return [pick(store.queues[queue], _CONTROL)]
