"""Time zones from the tzdata package alone, cut into pieces of one constant offset.

Python would take the operating system's data first, which differ from machine to machine: nodes
of one cluster would then disagree about when a task is due. The package's version is `VERSION`.

A zone is used in pieces: from one instant to another its clock runs evenly. Between two of them
it jumps. A wall time (see wall_times.py) may so be shown never, once or twice:

    piece     start .. end            its first and last wall time
    winter    ... .. 01:00Z           ... to 02:00, exclusive
    summer    01:00Z .. 01:00Z        03:00: what lies between 02:00 and 03:00 is the gap
    winter    01:00Z .. ...           02:00 again: 02:00 to 03:00 is the overlap

Each piece therefore knows `reached`, up to where the clock had come before it, and `returns`, the
lowest wall time that is still shown after it.
"""

from bisect import bisect_right
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata

VERSION: str = tzdata.IANA_VERSION
"""Version of the zone data, such as `2026f`."""

NAME_MAX = 100
"""Characters of the longest name; those of the package are far shorter."""

_CHUNK_BITS = 25  # a zone is looked at in chunks of 2**25 s, some 388 days
_STEP_BITS = 20  # and in them every 12 days: no zone has two changes so near each other
_CHUNKS_MAX = 16_384  # kept; one takes about 1 kB
_NO_PLACE = frozenset({"Factory", "localtime", "posixrules"})


class ZoneError(ValueError):
    """There is no such zone; the message is for the user."""


class Piece(NamedTuple):
    """From `start` to `end` (exclusive; seconds since the epoch), wall time is UTC plus `offset`."""

    start: int
    end: int
    offset: int
    reached: int
    """Wall time: the end of what was shown before `start`. Below it, a time is shown again."""
    returns: int
    """Wall time: what is shown from `end` on begins here. From it on, a time comes again."""


class Zone:
    """One zone of the package. Get it from `zone`."""

    def __init__(self, name: str, info: ZoneInfo) -> None:
        self.name = name
        self._info = info

    def piece(self, at: int) -> Piece:
        """The piece at `at`, seconds since the epoch. A piece is cut once a year or so."""
        starts, pieces = _pieces(self, at >> _CHUNK_BITS)
        return pieces[bisect_right(starts, at) - 1]

    def offset(self, at: int) -> int:
        """Seconds to add to UTC at `at`, seconds since the epoch."""
        offset = datetime.fromtimestamp(at, self._info).utcoffset()
        assert offset is not None, "a ZoneInfo always has an offset"
        return int(offset.total_seconds())


@cache
def names() -> frozenset[str]:
    """The names of all zones."""
    listed = files("tzdata").joinpath("zones").read_text(encoding="ascii").split()
    return frozenset(listed) - _NO_PLACE


@cache
def zone(name: str) -> Zone:
    """The zone called `name`, in its exact spelling. Raises ZoneError."""
    if name not in names():
        raise ZoneError(_unknown(name))
    path = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as data:
        return Zone(name, ZoneInfo.from_file(data, key=name))


def _unknown(name: str) -> str:
    if len(name) > NAME_MAX:
        return f"the name of a time zone has at most {NAME_MAX} characters"
    meant = [known for known in sorted(names()) if known.lower() == name.strip().lower()]
    hint = f"did you mean {meant[0]}?" if meant else "use a name such as Europe/Berlin or UTC"
    return f"{name!a} is not a time zone of the IANA data {VERSION}: {hint}"


@lru_cache(_CHUNKS_MAX)
def _pieces(zone: Zone, chunk: int) -> tuple[list[int], list[Piece]]:
    """The pieces of a chunk with their starts, looking at the chunks beside it for overlaps."""
    before, within, after = (_runs(zone, near) for near in (chunk - 1, chunk, chunk + 1))
    runs = before + within + after
    pieces = []
    for place in range(len(before), len(before) + len(within)):
        start, end, offset = runs[place]
        reached = max(run_end + run_offset for _, run_end, run_offset in runs[:place])
        returns = min(run_start + run_offset for run_start, _, run_offset in runs[place + 1 :])
        pieces.append(Piece(start, end, offset, reached, returns))
    return [piece.start for piece in pieces], pieces


@lru_cache(_CHUNKS_MAX)
def _runs(zone: Zone, chunk: int) -> list[tuple[int, int, int]]:
    """(start, end, offset) of the chunk, found by looking at steps and halving where one differs."""
    start, end = chunk << _CHUNK_BITS, chunk + 1 << _CHUNK_BITS
    step = 1 << _STEP_BITS
    starts, offsets = [start], [zone.offset(start)]
    for later in range(start + step, end + 1, step):
        later = min(later, end - 1)
        if zone.offset(later) == offsets[-1]:
            continue
        low, high = later - step, later  # the change is within (low, high]
        while high - low > 1:
            middle = (low + high) // 2
            if zone.offset(middle) == offsets[-1]:
                low = middle
            else:
                high = middle
        starts.append(high)
        offsets.append(zone.offset(high))
    return list(zip(starts, [*starts[1:], end], offsets, strict=True))
