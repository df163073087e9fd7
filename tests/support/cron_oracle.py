"""A slow judge of cron: it walks every minute of real time and reads the wall clock.

It shares nothing with `duly.wheel.cron`, neither parsing nor searching. The rules:

1. Fields are matched against the wall clock of the schedule's zone. Six fields: seconds first.
2. Fixed jobs (no `*`, `?` or `/` in hour, minute and second): all that a gap leaves out runs once,
   at the first instant after the gap; what is shown twice runs the first time.
3. Other jobs: every matching instant of real time.
4. Day of month and day of week both restricted: either matches. A field that starts with `*` or
   `?` is not restricted, so `*/2` is not, and then both must match.
5. Names, ranges, lists, steps, `a/n` (a to the end, every n), `L`, `5L` or `L5`, `5#3`, 7 for
   Sunday, aliases. A reversed range is an error.

`gap` and `fold` override rules 2 and 3, as `dst` of a schedule does.
"""

import calendar
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import product
from zoneinfo import ZoneInfo

_EPOCH_ORDINAL = datetime(1970, 1, 1).toordinal()
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {name.upper(): n for n, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: n for n, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}


@cache
def package_zone(name: str) -> ZoneInfo:
    """The zone from the tzdata package; `ZoneInfo(name)` would take the system's."""
    path = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with path.open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _number(text: str, low: int, high: int, names: dict[str, int]) -> int:
    if text.upper() in names:
        return names[text.upper()]
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"not a number: {text!r}")
    if not low <= int(text) <= high:
        raise ValueError(f"{text} is outside {low}..{high}")
    return int(text)


def _values(item: str, low: int, high: int, names: dict[str, int], top: int) -> Collection[int]:
    """What one item without `L` and `#` stands for; `*` and an open step reach up to `top`."""
    base, slash, step_text = item.partition("/")
    if slash and (not step_text.isascii() or not step_text.isdigit() or int(step_text) < 1):
        raise ValueError(f"bad step in {item!r}")
    step = int(step_text) if slash else 1
    if base in ("*", "?"):
        first, last = low, top
    elif "-" in base:
        begin, _, end = base.partition("-")
        first, last = _number(begin, low, high, names), _number(end, low, high, names)
        if first > last:
            raise ValueError(f"reversed range {item!r}")
    else:
        first = _number(base, low, high, names)
        last = max(top, first) if slash else first
    return range(first, last + 1, step)


def _field(text: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    return {v for item in text.split(",") for v in _values(item, low, high, names or {}, high)}


@dataclass
class Spec:
    """A parsed expression."""

    seconds: list[int]
    minutes: set[int]
    hours: set[int]
    days: set[int]
    last_day: bool
    months: set[int]
    weekdays: set[int]
    nth: set[tuple[int, int]]
    last: set[int]
    days_free: bool
    weekdays_free: bool
    interval: bool

    def has_day(self, year: int, month: int, day: int) -> bool:
        """Whether the date matches."""
        if month not in self.months:
            return False
        length = calendar.monthrange(year, month)[1]
        weekday = (calendar.weekday(year, month, day) + 1) % 7
        by_date = day in self.days or (self.last_day and day == length)
        by_weekday = (
            weekday in self.weekdays
            or (weekday, (day + 6) // 7) in self.nth
            or (weekday in self.last and day + 7 > length)
        )
        if self.days_free or self.weekdays_free:
            return by_date and by_weekday
        return by_date or by_weekday


def parse(expression: str) -> Spec:
    """Raises ValueError for what Duly is to refuse."""
    expression = expression.strip()
    if expression.startswith("@"):
        if expression.lower() not in _ALIASES:
            raise ValueError(f"unknown alias {expression!r}")
        expression = _ALIASES[expression.lower()]
    parts = expression.split()
    if len(parts) not in (5, 6):
        raise ValueError(f"{len(parts)} fields")
    second_text = parts.pop(0) if len(parts) == 6 else "0"
    minute_text, hour_text, day_text, month_text, weekday_text = parts
    days, last_day = set[int](), False
    for item in day_text.split(","):
        if item.upper() == "L":
            last_day = True
        else:
            days |= _field(item, 1, 31)
    weekdays, nth, last = set[int](), set[tuple[int, int]](), set[int]()
    for item in weekday_text.upper().split(","):
        if "#" in item:
            day, _, which = item.partition("#")
            nth.add((_number(day, 0, 7, _DAYS) % 7, _number(which, 1, 5, {})))
        elif item == "L":
            raise ValueError("a bare L in the day of week")
        elif item.startswith("L") or item.endswith("L"):
            day = item[1:] if item.startswith("L") else item[:-1]
            last.add(_number(day, 0, 7, _DAYS) % 7)
        else:
            weekdays |= {value % 7 for value in _values(item, 0, 7, _DAYS, 6)}
    clock = second_text + minute_text + hour_text
    return Spec(
        sorted(_field(second_text, 0, 59)), _field(minute_text, 0, 59), _field(hour_text, 0, 23),
        days, last_day, _field(month_text, 1, 12, _MONTHS), weekdays, nth, last,
        day_text[0] in "*?", weekday_text[0] in "*?", any(mark in clock for mark in "*?/"),
    )  # fmt: skip


def _walk(zone: ZoneInfo, first: int, last: int) -> list[tuple[int, int]]:
    """(UTC minute, minute on the wall) of every minute.

    A quarter of an hour that begins and ends with the same offset has it throughout.
    """

    def offset(minute: int) -> int:
        found = datetime.fromtimestamp(minute * 60, UTC).astimezone(zone).utcoffset()
        assert found is not None
        assert found.total_seconds() % 60 == 0, "use a modern date"
        return int(found.total_seconds()) // 60

    walk: list[tuple[int, int]] = []
    for quarter in range(first, last + 1, 15):
        begin, end = offset(quarter), offset(quarter + 15)
        minutes = range(quarter, min(quarter + 15, last + 1))
        walk += [(m, m + (begin if begin == end else offset(m))) for m in minutes]
    return walk


class Window:
    """Every minute of real time from `start` to `end`, two days more before and one after."""

    def __init__(self, zone_name: str, start: datetime, end: datetime) -> None:
        self.start, self.end = start, end
        self.rows: dict[int, list[tuple[int, int, bool, bool]]] = {n: [] for n in range(1440)}
        """Minute of the day -> (UTC minute, minute on the wall, shown before?, the last time?)."""
        self.gaps: list[tuple[int, range]] = []
        """(UTC minute right after a gap, the minutes that the wall clock left out)."""
        first = int((start - timedelta(days=2)).timestamp()) // 60
        last = int((end + timedelta(days=1)).timestamp()) // 60
        walk = _walk(package_zone(zone_name), first, last)
        last_shown = {wall: utc for utc, wall in walk}
        top = walk[0][1] - 1
        for utc, wall in walk:
            if wall > top + 1:
                self.gaps.append((utc, range(top + 1, wall)))
            row = (utc, wall, wall <= top, last_shown[wall] == utc)
            self.rows[wall % 1440].append(row)
            top = max(top, wall)


def fires(
    expression: str, window: Window, gap: str | None = None, fold: str | None = None
) -> list[datetime]:
    """All instants t with start < t <= end of the window at which it fires, ascending."""
    found = stamps(expression, window, gap, fold)
    return [datetime.fromtimestamp(stamp, UTC) for stamp in found]


def stamps(
    expression: str, window: Window, gap: str | None = None, fold: str | None = None
) -> list[int]:
    """The same as seconds since the epoch."""
    spec = parse(expression)
    gap = gap or ("skip" if spec.interval else "shift")
    fold = fold or ("both" if spec.interval else "first")
    dates: dict[int, bool] = {}
    found: set[int] = set()
    for utc, jumped in window.gaps:
        if gap == "shift" and any(_matches(spec, missed, dates) for missed in jumped):
            found.add(utc * 60)
    for hour, minute in product(spec.hours, spec.minutes):
        for utc, wall, again, last in window.rows[hour * 60 + minute]:
            wanted = fold == "both" or (last if fold == "second" else not again)
            if wanted and _matches(spec, wall, dates):
                found.update(utc * 60 + second for second in spec.seconds)
    low, high = window.start.timestamp(), window.end.timestamp()
    return [stamp for stamp in sorted(found) if low < stamp <= high]


def clock_changes(zone_name: str, first_year: int, last_year: int) -> list[datetime]:
    """The hours after which the offset is another, from `first_year` to `last_year`."""
    zone, hour = package_zone(zone_name), timedelta(hours=1)
    at, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC)
    found, offset = [], at.astimezone(zone).utcoffset()
    while at < end:
        at += hour
        if at.astimezone(zone).utcoffset() != offset:
            found.append(at)
            offset = at.astimezone(zone).utcoffset()
    return found


def _matches(spec: Spec, wall: int, dates: dict[int, bool]) -> bool:
    day, minute = divmod(wall, 1440)
    if minute % 60 not in spec.minutes or minute // 60 not in spec.hours:
        return False
    if day not in dates:
        date = datetime.fromordinal(_EPOCH_ORDINAL + day)
        dates[day] = spec.has_day(date.year, date.month, date.day)
    return dates[day]
