"""What a node says of itself to the others, and what it makes of what they say."""

import logging
import os
import socket
from collections.abc import Iterable
from datetime import datetime

import msgspec

from duly.wheel import zones

log = logging.getLogger("duly.nodes")


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


_decoder = msgspec.json.Decoder(NodeInfo)


def own(started_at: datetime, slots: int) -> bytes:
    """This process's words."""
    return msgspec.json.encode(
        NodeInfo(socket.gethostname(), os.getpid(), started_at, slots, zones.VERSION)
    )


def read(words: bytes) -> NodeInfo | None:
    """A node's words; None if they are not such, as of a version that says other things."""
    try:
        return _decoder.decode(words)
    except msgspec.DecodeError:
        return None


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
