"""What a cron expression says: five fields, or six with the seconds first.

    minute  hour  day of month  month  day of week       second  minute  hour  ...

Duly reads the syntax itself, so that every node and every version of croniter agree on it, and
refuses what crons understand differently: reversed ranges, `W`, `R`, `H`, years. Each item comes
out as a number or a plain `low-high/step`, which croniter expands. `L` and `#` are kept apart,
since croniter ties them to the day of month by "and". The rules in full: docs/schedules.md.
"""

from typing import NamedTuple

from croniter import croniter

EXPRESSION_MAX = 300
"""Characters of the longest expression; the length is checked before anything else."""

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SHOWN_MAX = 30


class CronError(ValueError):
    """The expression is not one that Duly accepts; the message is for the user."""


class Fields(NamedTuple):
    """The values of each field as a bit mask: bit 5 of `hours` is 05:xx, bit 0 of `weekdays` Sunday."""

    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    last_day: bool
    """`L`: the last day of the month too."""
    nth_weekdays: frozenset[tuple[int, int]]
    """`5#3` as (5, 3): the third Friday too."""
    last_weekdays: int
    """Bit mask of `5L` and `L5`: the last Friday of the month too."""
    either: bool
    """Day of month and day of week are both restricted, so either of them is enough."""
    interval: bool
    """A `*`, `?` or `/` in hour, minute or second: it runs at each matching real instant."""


class _Range(NamedTuple):
    """What a field may hold. `top` is how far `*` and `a/n` reach: 7 is Sunday once more."""

    name: str
    low: int
    high: int
    top: int
    names: dict[str, int]


_SECOND = _Range("second", 0, 59, 59, {})
_MINUTE = _Range("minute", 0, 59, 59, {})
_HOUR = _Range("hour", 0, 23, 23, {})
_DAY = _Range("day of month", 1, 31, 31, {})
_MONTH = _Range("month", 1, 12, 12, {name: n for n, name in enumerate(_MONTHS, 1)})
_WEEKDAY = _Range("day of week", 0, 7, 6, {name: n for n, name in enumerate(_DAYS)})


def canonical(expression: str) -> str:
    """The expression with single spaces; does not check what it says.

    Raises CronError if it is longer than `EXPRESSION_MAX` or holds anything but ASCII.
    """
    if len(expression) > EXPRESSION_MAX:
        raise CronError(
            f"an expression has at most {EXPRESSION_MAX} characters, got {len(expression)}"
        )
    if not expression.isascii():
        raise CronError("an expression holds ASCII characters only")
    return " ".join(expression.split())


def parse(expression: str) -> Fields:
    """The values of each field. Raises CronError."""
    texts = _split(canonical(expression))
    second, minute, hour, day, month, weekday = texts
    days, specials = [], _Specials()
    for item in day.split(","):
        if item.upper() == "L":
            specials.last_day = True
        else:
            days.append(_plain(item, _DAY))
    weekdays = [item for item in weekday.split(",") if not specials.take(item)]
    plain = [
        _plain_list(minute, _MINUTE),
        _plain_list(hour, _HOUR),
        ",".join(days),
        _plain_list(month, _MONTH),
        ",".join(_plain(item, _WEEKDAY) for item in weekdays),
        _plain_list(second, _SECOND),
    ]
    minutes, hours, in_days, months, in_weekdays, seconds = _expand(plain)
    return Fields(
        seconds, minutes, hours, in_days, months, in_weekdays,
        specials.last_day, frozenset(specials.nth), specials.last,
        either=day[0] not in "*?" and weekday[0] not in "*?",
        interval=any(mark in second + minute + hour for mark in "*?/"),
    )  # fmt: skip


def _split(expression: str) -> list[str]:
    """Six fields, the seconds first."""
    if expression.startswith("@"):
        if expression.lower().startswith("@every"):
            raise CronError("@every is not cron: give the period as `every`")
        if expression.lower() not in _ALIASES:
            raise CronError(f"{_shown(expression)} is not one of {', '.join(_ALIASES)}")
        expression = _ALIASES[expression.lower()]
    if "=" in expression:
        raise CronError("a time zone is given as `timezone`, not in the expression")
    texts = expression.split()
    if len(texts) == 7:
        raise CronError("seven fields: years are not supported, use `end_at`")
    if len(texts) not in (5, 6):
        raise CronError(f"expected 5 fields, or 6 with the seconds first, got {len(texts)}")
    return texts if len(texts) == 6 else ["0", *texts]


class _Specials:
    """What is not a plain set of values: `L`, `5L`, `L5`, `5#3`."""

    def __init__(self) -> None:
        self.last_day = False
        self.last = 0
        self.nth: set[tuple[int, int]] = set()

    def take(self, item: str) -> bool:
        """Whether `item` of the day of week is special, and so is kept here."""
        if "#" in item:
            day, _, nth = item.partition("#")
            if nth not in ("1", "2", "3", "4", "5"):
                raise CronError(f"{_shown(item)}: the number after # is 1 to 5")
            self.nth.add((_number(day, item, _WEEKDAY) % 7, int(nth)))
            return True
        bare = (
            item[1:] if item[:1] in ("L", "l") else item[:-1] if item[-1:] in ("L", "l") else None
        )
        if bare is None:
            return False
        if not bare:
            raise CronError("L in the day of week needs a day: 5L is the last Friday of the month")
        self.last |= 1 << _number(bare, item, _WEEKDAY) % 7
        return True


def _plain_list(text: str, field: _Range) -> str:
    return ",".join(_plain(item, field) for item in text.split(","))


def _plain(item: str, field: _Range) -> str:
    """`item` as numbers, and `low-high/step` with more than one value.

    A range of one value must not reach croniter as a range: it takes `9-9` for the whole field.
    """
    base, slash, step_text = item.partition("/")
    step = 1
    if slash:
        if not step_text.isdigit() or int(step_text) == 0:
            raise CronError(f"{_shown(item)} in the {field.name}: a step is a number from 1")
        step = int(step_text)
    if base in ("*", "?"):
        first, last = field.low, field.top
    elif "-" in base:
        low, _, high = base.partition("-")
        first, last = _number(low, item, field), _number(high, item, field)
        if first > last:
            raise CronError(
                f"{_shown(item)} in the {field.name}: the range is reversed; write two ranges"
            )
    else:
        first = _number(base, item, field)
        last = max(field.top, first) if slash else first
    values = range(first, last + 1, step)
    items = [_span(range(first, min(last, field.top) + 1, step))] if first <= field.top else []
    if field.top < field.high and field.high in values:  # versions of croniter differ about 7
        items.append(str(field.low))
    return ",".join(items)


def _span(values: range) -> str:
    return f"{values[0]}-{values[-1]}/{values.step}" if len(values) > 1 else str(values[0])


def _number(text: str, item: str, field: _Range) -> int:
    value = field.names.get(text.upper())
    if value is not None:
        return value
    where = f"{_shown(item)} in the {field.name}" if item else f"an empty item in the {field.name}"
    if not text.isdigit():
        raise CronError(f"{where}: {_why_not(text, field)}")
    if not field.low <= int(text) <= field.high:
        raise CronError(f"{where}: {_shown(text)} is not within {field.low} to {field.high}")
    return int(text)


def _why_not(text: str, field: _Range) -> str:
    letters = text.upper()
    if field is _DAY and "W" in letters:
        return "W (nearest weekday) is not supported"
    if letters[:1] in ("R", "H") and not letters[1:2].isalpha():
        return "R and H (random or hashed times) are not supported, use `jitter`"
    if "L" in letters and not letters.replace("L", "").isalpha():
        return "L stands alone in the day of month, or beside a day of the week as in 5L"
    return f"expected a number{', a name' if field.names else ''}, a range, a step or *"


def _expand(plain: list[str]) -> list[int]:
    """Bit masks of minute, hour, day, month, weekday and second (croniter's order) by croniter.

    A field without plain values, such as `5L` alone, is empty in the result.
    """
    values, _ = croniter.expand(" ".join(text or "*" for text in plain))
    masks = []
    ranges = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY, _SECOND)
    for text, field, found in zip(plain, ranges, values, strict=True):
        if not text:
            found = []
        elif found == ["*"]:
            found = range(field.low, field.top + 1)
        masks.append(sum(1 << value for value in set(found)))
    return masks


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...")
