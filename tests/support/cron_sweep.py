"""Compares `duly.wheel.cron` with the oracle around every clock change of many zones.

    python tests/support/cron_sweep.py [--processes 2]        (scripts/check_cron)

Each pair of an expression and a window of four days is asked in three ways: one instant after the
other, from starts at and beside each instant and at odd times, and backwards. Prints each
disagreement and ends with status 1 if there is one.
"""

import argparse
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

from cron_oracle import Window, clock_changes, stamps
from cron_rig import backward_stamps, forward_stamps, make

ZONES = (
    "UTC", "Asia/Kolkata", "Europe/Berlin", "Europe/Dublin", "America/New_York",
    "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo",
    "America/Santiago", "Africa/Cairo", "Antarctica/Troll", "Pacific/Apia", "America/Havana",
    "Asia/Beirut", "Asia/Tehran", "Pacific/Chatham", "America/Los_Angeles",
)  # fmt: skip
"""Shifts of 30 minutes, one and two hours; at midnight, 01:00, 02:00, 02:45 and 24:00; none."""

YEARS = (2018, 2030)

_MINUTES = ("0", "30", "59", "0,15,30", "0-10", "*", "*/15", "*/7", "5/20", "7-22/5")
_HOURS = ("*", "*/2", "0", "1", "2", "3", "23", "1,2,3", "2-3", "2-2", "0-23/3", "1/5")
_DAYS = (
    "* * 0", "1 * *", "L * *", "* * SUNL", "* * L5", "25-31 3,10 SUN", "*/2 * MON", "1-7 * 7#1",
    "8-14 11 *", "* MAR 0#2", "* * MON-FRI", "13 * 5", "? * 6-7", "31 * SAT#5",
)  # fmt: skip
_TIMES = ("30 2", "0 0", "0,30 1-3", "*/20 *", "15 */2", "45 1", "5/25 0-4", "0 3,4,23")
_OTHERS = (
    "@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@midnight", "@annually",
    "30 30 2 * * *", "*/20 0 2 * * *", "0 0 2 * * *", "59 59 23 * * *", "10,40 */30 * * * *",
    "0 15 1-2 * * *", "* 59 1 * * *", "*/45 30 2 * * SUN", "20 * * * * MON", "5-6 0 0 L * *",
)  # fmt: skip

EXPRESSIONS = (
    *(f"{minute} {hour} * * *" for minute in _MINUTES for hour in _HOURS),
    *(f"{at} {days}" for at in _TIMES for days in _DAYS),
    *(f"{minute} {at} * * *" for minute in _MINUTES for at in ("*/30 *", "30 2", "0,30 1-3")),
    *_OTHERS,
    *(f"{minute} {hour} * * {day}" for minute in (5, 50) for hour in range(6) for day in (0, 6)),
)
"""Over 300 expressions: fixed and interval jobs, with days that the changes fall on."""


def windows(zone_name: str, days: float) -> list[Window]:
    """`days` before to after every clock change; without any, in spring and autumn of each year."""
    changes = clock_changes(zone_name, *YEARS) or [
        datetime(year, month, 28, 1, tzinfo=UTC)
        for year in range(YEARS[0], YEARS[1] + 1)
        for month in (3, 10)
    ]
    span = timedelta(days=days)
    return [Window(zone_name, change - span, change + span) for change in changes]


def disagreements(
    expression: str,
    zone_name: str,
    window: Window,
    gap: str | None = None,
    fold: str | None = None,
) -> Iterator[str]:
    """What differs from the oracle, for one expression and one window."""
    expected = stamps(expression, window, gap, fold)
    cron = make(expression, zone_name, gap, fold)  # type: ignore[arg-type]
    where = f"{expression!r} {zone_name} {window.start:%Y-%m-%d} {gap} {fold}"
    begin, end = int(window.start.timestamp()), int(window.end.timestamp())
    walked = forward_stamps(cron, begin, end)
    if walked != expected:
        yield f"{where} forwards: {_difference(walked, expected)}"
    back = backward_stamps(cron, begin, end)
    if back != expected:
        yield f"{where} backwards: {_difference(back, expected)}"
    for start in _starts(begin, end, expected):
        place = bisect_right(expected, start)
        following = cron.after(start)
        if place < len(expected) and following != expected[place]:
            yield f"{where} from {start}: {following}, expected {expected[place]}"
        elif place == len(expected) and following is not None and following <= end:
            yield f"{where} from {start}: {following}, expected none"
        before = cron.until(start, begin)
        if before != (expected[place - 1] if place else None):
            yield f"{where} until {start}: {before}, expected {expected[place - 1 : place]}"


def _starts(begin: int, end: int, expected: Sequence[int]) -> Iterator[int]:
    """At, just before and just after instants near the change, and at odd times all over."""
    near = bisect_right(expected, (begin + end) // 2 - 4 * 3600)
    for instant in expected[max(0, near - 1) : near + 12]:
        yield from (instant - 1, instant, instant + 1)
    yield from range(begin, end, 5 * 3600 + 431)


def _difference(found: Sequence[int], expected: Sequence[int]) -> str:
    missing = [str(datetime.fromtimestamp(one, UTC)) for one in sorted({*expected} - {*found})]
    extra = [str(datetime.fromtimestamp(one, UTC)) for one in sorted({*found} - {*expected})]
    return f"missing {missing[:3]}, extra {extra[:3]}"


def _sweep(zone_name: str, every_override: bool) -> tuple[str, int, list[str]]:
    pairs, found = 0, list[str]()
    ways: list[tuple[str | None, str | None]] = [(None, None)]
    if every_override:
        ways = [(gap, fold) for gap in ("shift", "skip") for fold in ("first", "second", "both")]
    for window in windows(zone_name, 2):
        for expression in EXPRESSIONS:
            for gap, fold in ways:
                pairs += 1
                found += disagreements(expression, zone_name, window, gap, fold)
    return zone_name, pairs, found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--dst", action="store_true", help="with each value of `dst` (six times as long)"
    )
    parser.add_argument("--zones", nargs="+", default=ZONES)
    asked = parser.parse_args()
    begun, pairs, wrong = time.monotonic(), 0, 0
    with ProcessPoolExecutor(asked.processes) as pool:
        for name, count, found in pool.map(partial(_sweep, every_override=asked.dst), asked.zones):
            pairs, wrong = pairs + count, wrong + len(found)
            print(f"{name}: {count} pairs, {len(found)} disagreements", *found[:20], sep="\n  ")
    print(
        f"{len(EXPRESSIONS)} expressions, {len(asked.zones)} zones, {YEARS[0]} to {YEARS[1]}: "
        f"{pairs} pairs, {wrong} disagreements, {time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
