"""What a node says of itself to the others, and what it makes of what they say."""

import logging
import os
import socket
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec

from duly.storage.migrate import migrations
from duly.wheel import zones

if TYPE_CHECKING:
    from duly.actors.context import Context

log = logging.getLogger("duly.nodes")

_VERSION = version("duly")

SCHEMA: Final = migrations()[-1].version
"""The newest migration of the database that this version knows."""


class NodeInfo(msgspec.Struct):
    """Registered with each beat (storage/members.py). Later versions may say more."""

    host: str
    pid: int
    started_at: datetime
    """On the cluster's clock."""
    slots: int
    """How many it held at its last beat."""
    tzdata: str | None = None
    """IANA version of its time zone data."""
    version: str | None = None
    """Of Duly."""
    schema: int | None = None
    """The newest migration of the database that it knows."""
    wheel_entries: int | None = None
    ready_entries: int | None = None
    lag_p99_s: float | None = None
    """From the due time to the publication, of its tasks of the last five minutes; None without any."""
    lease_age_s: float | None = None
    """Since its leases were last renewed; None while it holds none."""
    clock_offset_s: float | None = None
    """How far its idea of PostgreSQL's time is ahead of what it last measured."""
    redis: bool | None = None
    """Whether all of its work with Redis succeeds."""
    postgres: bool | None = None
    listeners: int | None = None
    """Clients that look on at what happens to tasks."""


_decoder = msgspec.json.Decoder(NodeInfo)


def own(context: "Context", started_at: datetime, slots: int) -> bytes:
    """This process's words."""
    vitals, clock = context.vitals, context.clock
    age_s = round(clock.monotonic() - vitals.lease_renewed_at, 3) if vitals.owned_slots else None
    return msgspec.json.encode(
        NodeInfo(
            socket.gethostname(), os.getpid(), started_at, slots, zones.VERSION,
            version=_VERSION,
            schema=SCHEMA,
            wheel_entries=vitals.wheel_entries,
            ready_entries=vitals.ready_entries,
            lag_p99_s=context.meters.lag_p99_s(clock.now_us()),
            lease_age_s=age_s,
            clock_offset_s=clock.error_us / 1e6,
            redis=not vitals.redis.now,
            postgres=not vitals.postgres.now,
            listeners=context.feed.listeners,
        )
    )  # fmt: skip


def read(words: bytes) -> NodeInfo | None:
    """A node's words; None if they are not such, as of a version that says other things."""
    try:
        return _decoder.decode(words)
    except msgspec.DecodeError:
        return None


def schema_of(words: bytes) -> int:
    """The newest migration that the node of these words knows; 0 if it does not say: it is older, then."""
    info = read(words)
    return 0 if info is None or info.schema is None else info.schema


class ZoneVersions:
    """Whether the live nodes have the same time zone data; says once when they do not."""

    def __init__(self) -> None:
        self.known: tuple[str, ...] = ()
        """The versions among the live nodes, ascending."""

    def note(self, words: Iterable[bytes]) -> None:
        """Look at what every live node says of itself."""
        found = {info.tzdata for info in map(read, words) if info and info.tzdata}
        before, self.known = self.known, tuple(sorted(found))
        if self.differ and self.known != before:
            log.warning(
                "nodes have different time zone data (%s): until all have the same, they may "
                "disagree about when a cron schedule fires; update the package tzdata",
                ", ".join(self.known),
            )
        elif len(before) > 1 and not self.differ:
            log.info("all nodes have the same time zone data again")

    @property
    def differ(self) -> bool:
        """Whether there is more than one version."""
        return len(self.known) > 1
