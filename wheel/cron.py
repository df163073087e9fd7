"""When a cron expression fires in a time zone, across every change of its clock.

Expressions speak of wall times. Most wall times are one instant; a change of the clock makes some
none or two:

    gap      the clock jumps forward: the times it leaves out are never shown
             `shift`: all that match run once together, at the first instant after the gap
             `skip`: they do not run
    overlap  the clock goes back: the times in between are shown twice
             `first`, `second` or `both` of them run

A job at fixed times takes `shift` and `first`, so that a nightly job runs once a night. A job with
`*`, `?` or `/` in hour, minute or second takes `skip` and `both`, so that a job every ten minutes
runs every ten real minutes. A schedule may say otherwise (`dst`).

`after` works piece by piece (see zones.py): in one piece it is plain arithmetic. Where the next
matching wall time is far away, it jumps there.
"""

from typing import Literal

from duly.wheel.cron_fields import CronError, parse
from duly.wheel.wall_times import DAY_S, WallTimes
from duly.wheel.zones import Zone

Gap = Literal["shift", "skip"]
Fold = Literal["first", "second", "both"]

LAST_S = 32_503_679_999
"""Seconds since the epoch of 2999-12-31T23:59:59Z: nothing fires later."""

_PIECES_MAX = 60
"""Pieces looked at by one search. Few are needed unless every match lies in a gap."""

_MARGIN_S = 3 * DAY_S  # more than an offset and an overlap together


class Cron:
    """An expression in a zone. Instants are whole seconds since the epoch."""

    def __init__(
        self, expression: str, zone: Zone, gap: Gap | None = None, fold: Fold | None = None
    ) -> None:
        """`gap`, `fold`: None for what suits the kind of job. Raises CronError."""
        fields = parse(expression)
        self.zone = zone
        self.interval = fields.interval
        self.gap: Gap = gap or ("skip" if fields.interval else "shift")
        self.fold: Fold = fold or ("both" if fields.interval else "first")
        self.walls = WallTimes(fields)

    def after(self, at: int) -> int | None:
        """The first instant after `at` at which it fires.

        None if there is none until the end of 2999, or every match of the next decades lies in a
        gap that is skipped.
        """
        place = at + 1
        for _ in range(_PIECES_MAX):
            if place > LAST_S:
                return None
            piece = self.zone.piece(place)
            offset = piece.offset
            at_gap = place == piece.start and self.gap == "shift"
            if at_gap and self._misses(piece.reached, place + offset):
                return place
            low = max(place + offset, piece.reached) if self.fold == "first" else place + offset
            high = piece.end + offset
            if self.fold == "second":
                high = min(high, piece.returns)
            wall = self.walls.at_or_after(low)
            if wall is None:
                return None
            if wall < high:
                return wall - offset if wall - offset <= LAST_S else None
            reached_far = piece.end - place >= DAY_S  # an overlap does not go back before `low`
            jump = wall - offset - _MARGIN_S if reached_far else piece.end
            place = max(piece.end, jump)
        return None

    def until(self, at: int, floor: int) -> int | None:
        """The last instant at or before `at`, but after `floor`, at which it fires."""
        place = at
        for _ in range(_PIECES_MAX):
            if place <= floor:
                return None
            piece = self.zone.piece(place)
            offset, start = piece.offset, piece.start
            low = max(start + offset, piece.reached) if self.fold == "first" else start + offset
            high = place + offset
            if self.fold == "second":
                high = min(high, piece.returns - 1)
            wall = self.walls.at_or_before(high)
            if wall is None:
                return None
            if wall >= low:
                return wall - offset if wall - offset > floor else None
            if self.gap == "shift" and self._misses(piece.reached, start + offset):
                return start if start > floor else None
            reached_far = place - start >= DAY_S
            jump = wall - offset + _MARGIN_S if reached_far else start
            place = min(start - 1, jump)
        return None

    def _misses(self, low: int, high: int) -> bool:
        """Whether a wall time from `low` to `high` (exclusive) matches; false if there is none."""
        missed = self.walls.at_or_after(low)
        return missed is not None and missed < high


__all__ = ["Cron", "CronError", "Fold", "Gap"]
