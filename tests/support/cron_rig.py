"""Runs a cron expression of `duly.wheel.cron` over a window of time, in the ways it can be asked."""

from collections.abc import Iterable
from datetime import UTC, datetime

from duly.wheel.cron import Cron, Fold, Gap
from duly.wheel.durations import parse_time
from duly.wheel.zones import zone


def make(expression: str, zone_name: str, gap: Gap | None = None, fold: Fold | None = None) -> Cron:
    """The expression in the zone."""
    return Cron(expression, zone(zone_name), gap, fold)


def forwards(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    """All instants in (start, end], one after the other."""
    return _instants(forward_stamps(cron, int(start.timestamp()), int(end.timestamp())))


def backwards(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    """All instants in (start, end], found from the last one on; ascending."""
    return _instants(backward_stamps(cron, int(start.timestamp()), int(end.timestamp())))


def forward_stamps(cron: Cron, start: int, end: int) -> list[int]:
    """As `forwards`, in seconds since the epoch."""
    found, at = list[int](), start
    while (following := cron.after(at)) is not None and following <= end:
        assert following > at, "each instant is later than the one before"
        found.append(following)
        at = following
    return found


def backward_stamps(cron: Cron, start: int, end: int) -> list[int]:
    """As `backwards`, in seconds since the epoch."""
    found, at = list[int](), end
    while (before := cron.until(at, start)) is not None:
        assert start < before <= at
        found.append(before)
        at = before - 1
    return found[::-1]


def _instants(stamps: Iterable[int]) -> list[datetime]:
    return [datetime.fromtimestamp(stamp, UTC) for stamp in stamps]


def next_fires(expression: str, zone_name: str, after: str | datetime, count: int) -> list[str]:
    """The next `count` instants after `after`, as `2027-10-30T18:00Z` (seconds if they matter)."""
    at = parse_time(after) if isinstance(after, str) else after
    cron, seconds = make(expression, zone_name), int(at.timestamp())
    found = []
    for _ in range(count):
        following = cron.after(seconds)
        assert following is not None
        assert following > seconds
        seconds = following
        shown = datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
        found.append(shown.removesuffix(":00") + "Z")
    return found
