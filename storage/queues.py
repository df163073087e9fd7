"""What operators set of a queue: whether it is paused, its rate, how much of it may run at once."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from duly.storage import audit
from duly.storage.audit import Note
from duly.storage.database import Database
from duly.storage.permits import Rate

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Control(NamedTuple):
    """Of one queue. Null: no limit."""

    queue: str
    paused: bool = False
    paused_by: str | None = None
    """The name of the token; also null if it was paused on a node without tokens."""
    paused_at: datetime | None = None
    rate: float | None = None
    """Tasks a second, over the whole cluster."""
    burst: int | None = None
    """How many may go at once after a silence; None: that follows from the rate (see `pace`)."""
    max_in_flight: int | None = None
    """Tasks dispatched and not recorded, over the whole cluster."""
    updated_at: datetime | None = None
    updated_by: str | None = None

    @property
    def pace(self) -> Rate | None:
        """Its rate, if it has one; without a `burst`, what comes in a tenth of a second may go at once."""
        if self.rate is None:
            return None
        revision = 0 if self.updated_at is None else round(self.updated_at.timestamp() * 1e6)
        return Rate(self.rate, self.burst or max(1, math.ceil(self.rate / 10)), revision)


class ControlChange(NamedTuple):
    """What to change of a queue. `paused`: None leaves it; the limits change if `set_…` says so."""

    paused: bool | None = None
    set_rate: bool = False
    rate: float | None = None
    set_burst: bool = False
    burst: int | None = None
    set_max_in_flight: bool = False
    max_in_flight: int | None = None


async def controls(db: Database) -> list[Control]:
    """Of every queue of which anything was ever set."""
    return [Control(*row) for row in await db.fetch("queue_controls")]


def state(controls: Iterable[Control]) -> int:
    """A number that grows with each change, whoever's clock it goes by; `sweeps.sweep` answers the same one."""
    since = (one.updated_at - _EPOCH for one in controls if one.updated_at is not None)
    return sum(age // timedelta(microseconds=1) for age in since)


async def control(
    db: Database, queue: str, wanted: ControlChange, now: datetime, note: Note
) -> Control:
    """Change what is set of a queue, and note it in the same transaction."""
    args = (queue, *wanted, now, note.who)
    rows = await audit.change(db, note, "control_queue", None, now, *args)
    return Control(*rows[0])


async def copy(db: Database, controls: Sequence[Control]) -> None:
    """Put these, as another store has them, in the place of what this one has."""
    await db.fetch(
        "copy_controls", *map(list, zip(*controls, strict=True) if controls else [()] * 9)
    )
