"""The wall-clock times that a cron expression matches: a calendar without any time zone.

A wall time is what a clock on the wall shows, as seconds since 1970-01-01T00:00 on that clock.
A month looks in one of 28 ways (the weekday of its first day, its length), so which of its days
match is worked out at most 28 times. Searching is then a matter of bit masks.
"""

from collections.abc import Iterator
from datetime import date

from duly.wheel.cron_fields import CronError, Fields

DAY_S = 86_400
_YEARS = range(1969, 3001)
"""Years searched: those of durations.py, and one more each way for the offset."""

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class WallTimes:
    """The matching wall times, ascending. Raises CronError if there is none at all."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._shapes: dict[tuple[int, int], int] = {}
        self._months = [month for month in range(1, 13) if fields.months >> month & 1]
        self._first_s = _lowest(fields.seconds)
        self._first_in_hour_s = _lowest(fields.minutes) * 60 + self._first_s
        self._first_in_day_s = _lowest(fields.hours) * 3600 + self._first_in_hour_s
        self._last_s = _highest(fields.seconds)
        self._last_in_hour_s = _highest(fields.minutes) * 60 + self._last_s
        self._last_in_day_s = _highest(fields.hours) * 3600 + self._last_in_hour_s
        if not self._has_days():
            raise CronError("it can never fire: no date has such a day, month and weekday")

    def at_or_after(self, wall_s: int) -> int | None:
        """The first one at or after `wall_s`, None if there is none before the year 3001."""
        day, second = divmod(wall_s, DAY_S)
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        if self._month(at) >> at.day & 1:
            found_s = self._later_in_day(second)
            if found_s is not None:
                return day * DAY_S + found_s
        next_day = self._next_day(day + 1)
        return None if next_day is None else next_day * DAY_S + self._first_in_day_s

    def at_or_before(self, wall_s: int) -> int | None:
        """The last one at or before `wall_s`, None if there is none since the year 1969."""
        day, second = divmod(wall_s, DAY_S)
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        if self._month(at) >> at.day & 1:
            found_s = self._earlier_in_day(second)
            if found_s is not None:
                return day * DAY_S + found_s
        last_day = self._last_day(day - 1)
        return None if last_day is None else last_day * DAY_S + self._last_in_day_s

    # Within a day

    def _later_in_day(self, second: int) -> int | None:
        fields = self._fields
        hour, in_hour = divmod(second, 3600)
        if fields.hours >> hour & 1:
            minute, in_minute = divmod(in_hour, 60)
            if fields.minutes >> minute & 1 and (left := fields.seconds >> in_minute):
                return second + _lowest(left)
            if left := fields.minutes >> minute + 1:
                return hour * 3600 + (minute + 1 + _lowest(left)) * 60 + self._first_s
        if left := fields.hours >> hour + 1:
            return (hour + 1 + _lowest(left)) * 3600 + self._first_in_hour_s
        return None

    def _earlier_in_day(self, second: int) -> int | None:
        fields = self._fields
        hour, in_hour = divmod(second, 3600)
        if fields.hours >> hour & 1:
            minute, in_minute = divmod(in_hour, 60)
            if fields.minutes >> minute & 1 and (left := _below(fields.seconds, in_minute + 1)):
                return hour * 3600 + minute * 60 + _highest(left)
            if left := _below(fields.minutes, minute):
                return hour * 3600 + _highest(left) * 60 + self._last_s
        if left := _below(fields.hours, hour):
            return _highest(left) * 3600 + self._last_in_hour_s
        return None

    # Days, counted since 1970-01-01

    def _next_day(self, day: int) -> int | None:
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        if left := self._month(at) >> at.day:
            return day + _lowest(left)
        for first in self._months_after(at):
            if days := self._month(first):
                return first.toordinal() - _EPOCH_ORDINAL + _lowest(days) - 1
        return None

    def _last_day(self, day: int) -> int | None:
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        if left := _below(self._month(at), at.day + 1):
            return day - at.day + _highest(left)
        for first in self._months_before(at):
            if days := self._month(first):
                return first.toordinal() - _EPOCH_ORDINAL + _highest(days) - 1
        return None

    def _months_after(self, at: date) -> Iterator[date]:
        """The first day of each month of `months` after that of `at`."""
        for year in range(at.year, _YEARS.stop):
            for month in self._months:
                if year > at.year or month > at.month:
                    yield date(year, month, 1)

    def _months_before(self, at: date) -> Iterator[date]:
        """The first day of each month of `months` before that of `at`, backwards."""
        for year in range(at.year, _YEARS.start - 1, -1):
            for month in reversed(self._months):
                if year < at.year or month < at.month:
                    yield date(year, month, 1)

    def _month(self, at: date) -> int:
        """Bit mask of the days that match in the month of `at`."""
        year, month = at.year, at.month
        if not self._fields.months >> month & 1:
            return 0
        leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        shape = (at.isoweekday() - at.day + 1) % 7, 29 if leap else _LENGTHS[month]
        days = self._shapes.get(shape)
        if days is None:
            days = self._shapes[shape] = _matching_days(self._fields, *shape)
        return days

    def _has_days(self) -> bool:
        lengths = {_LENGTHS[month] for month in self._months}
        if 2 in self._months:
            lengths.add(29)
        shapes = ((first, length) for length in lengths for first in range(7))
        return any(_matching_days(self._fields, *shape) for shape in shapes)


def _matching_days(fields: Fields, first_weekday: int, length: int) -> int:
    """Bit mask of the days of a month that match, in which the first is `first_weekday`."""
    mask = 0
    for day in range(1, length + 1):
        weekday = (first_weekday + day - 1) % 7
        by_date = fields.days >> day & 1 or (fields.last_day and day == length)
        by_weekday = (
            fields.weekdays >> weekday & 1
            or (weekday, (day + 6) // 7) in fields.nth_weekdays
            or (fields.last_weekdays >> weekday & 1 and day + 7 > length)
        )
        if (by_date or by_weekday) if fields.either else (by_date and by_weekday):
            mask |= 1 << day
    return mask


def _below(mask: int, bit: int) -> int:
    return mask & (1 << bit) - 1


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1
