"""What a schedule will do: its next fire times, and remarks on them.

The fire times come from the `Plan` that nodes compute with. The remarks say where a change of the
clock moves, drops or repeats a time, and that a schedule fires when all others do.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from duly.wheel.cron import Cron
from duly.wheel.durations import to_us
from duly.wheel.schedule import Plan
from duly.wheel.schedule_fields import Schedule
from duly.wheel.wall_times import DAY_S
from duly.wheel.zones import Piece

COUNT_MAX = 100
"""Most fire times of one preview."""

_NOTES_MAX = 10
_NOTED_S = 20 * 366 * DAY_S  # how far ahead clock changes are looked at
_SHOWN_TIMES = 3
_SECOND_US = 1_000_000
_WALL_EPOCH = datetime(1970, 1, 1)


class Preview(NamedTuple):
    """Fire times, ascending, and remarks for people."""

    fire_times: list[datetime]
    notes: list[str]


def preview(schedule: Schedule, after: datetime, count: int) -> Preview:
    """The next `count` fire times after `after`, as of a task made then; fewer if it ends."""
    plan = Plan(schedule, after)
    times: list[datetime] = []
    at = after
    while len(times) < count and (following := plan.after(at)) is not None:
        times.append(following)
        at = following
    notes = list(clock_notes(plan, after, times[-1])) if times else []
    on_the_hour = sum(1 for time in times if to_us(time) % (3600 * _SECOND_US) == 0)
    if on_the_hour * 2 > len(times) and not schedule.jitter_us:
        notes.append("fires at :00 of the hour, as many schedules do; `jitter` spreads the herd")
    if len(times) < count:
        notes.append("the schedule ends after these")
    return Preview(times, notes)


def clock_notes(plan: Plan, after: datetime, until: datetime) -> Iterator[str]:
    """A remark for each clock change from `after` to `until` that touches the schedule; the first ten."""
    if plan.cron is None:
        return
    begin = to_us(after) // _SECOND_US
    end = min(to_us(until) // _SECOND_US, begin + _NOTED_S)
    piece, left = plan.cron.zone.piece(begin), _NOTES_MAX
    while piece.end <= end and left:
        before, piece = piece, plan.cron.zone.piece(piece.end)
        note = _note(plan.cron, before, piece)
        if note is not None:
            left -= 1
            yield note


def _note(cron: Cron, before: Piece, piece: Piece) -> str | None:
    """What the change between two pieces does to the schedule, None if nothing."""
    left_off, goes_on = piece.start + before.offset, piece.start + piece.offset
    walls = _walls(cron, min(left_off, goes_on), max(left_off, goes_on))
    if left_off == goes_on or not walls:
        return None
    day = min(left_off, goes_on) // DAY_S
    off, on = _clock(left_off, day), _clock(goes_on, day)
    shown = ", ".join(_clock(wall, day) for wall in walls[:_SHOWN_TIMES])
    if len(walls) > _SHOWN_TIMES:
        shown += " and so on"
    if goes_on > left_off:
        jump = f"forward from {off} to {on}"
        effect = f"runs once, at {on}" if cron.gap == "shift" else "does not run"
    else:
        jump = f"back from {off} to {on}"
        runs = {"both": "both times", "first": "the first time only", "second": "the second time"}
        effect = f"comes twice and runs {runs[cron.fold]}"
    date = _WALL_EPOCH + timedelta(days=day)
    return (
        f"{date:%Y-%m-%d}, {cron.zone.name}: the clock goes {jump}; what is due at {shown} {effect}"
    )


def _walls(cron: Cron, low: int, high: int) -> list[int]:
    """The first matching wall times from `low` to `high` (exclusive): one more than is shown."""
    found: list[int] = []
    wall = cron.walls.at_or_after(low)
    while wall is not None and wall < high and len(found) <= _SHOWN_TIMES:
        found.append(wall)
        wall = cron.walls.at_or_after(wall + 1)
    return found


def _clock(wall: int, day: int) -> str:
    """The time of day, with the date if that is not `day` (days since 1970-01-01)."""
    time = _WALL_EPOCH + timedelta(seconds=wall)
    date = "" if wall // DAY_S == day else f"{time:%Y-%m-%d} "
    return date + (f"{time:%H:%M:%S}" if wall % 60 else f"{time:%H:%M}")
