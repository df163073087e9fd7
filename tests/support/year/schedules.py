"""A mixed set of schedules, and the instants at which the oracle says that they fire."""

import bisect
import random
from array import array
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from cron_oracle import Window, fires

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)

ZONES = ("Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe")
RARE = (
    "0 0 1 * *", "30 6 L * *", "0 12 * * MON#2", "0 2 * * 0", "45 22 13 * 5", "30 1 * * L6",
    "@weekly", "0 16 */2 * SAT",
)  # fmt: skip
DAILY = (
    "0 3 * * *", "30 2 * * *", "30 1 * * *", "@daily", "15 8 * * MON-FRI", "0 6,18 * * *",
    "30 15 7 * * *", "5 2,3 * * *",
)  # fmt: skip
SEVERAL = ("0 */4 * * *", "20 2-22/4 * * *", "*/30 1-3 * * *", "0 8-17/3 * * *")
HOURLY = ("17 * * * *", "30 * * * MON-FRI")
OFTEN = ("*/15 * * * *", "5-55/25 * * * *")
DST = ({"gap": "skip", "fold": "both"}, {"gap": "shift", "fold": "second"})
EVERY_S = (43_200.5, 21_600, 86_400, 90_061.000001, 604_800)
EVERY_OFTEN_S = (900, 3600, 5400)


class Drawn(NamedTuple):
    """One schedule, as it is submitted, and its instants (µs since the epoch) until the end."""

    id: UUID
    created_us: int
    body: dict[str, Any]
    """Fields of the submission."""
    expected: Sequence[int]


def us(instant: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def draw(rng: random.Random, count: int, start: datetime, end: datetime) -> list[Drawn]:
    """`count` schedules that are made within a day from `start`, with what they owe until `end`."""
    drawn = [_schedule(rng, number / count) for number in range(count)]
    by_zone: dict[str, list[int]] = defaultdict(list)
    for place, schedule in enumerate(drawn):
        by_zone[schedule.get("timezone", "")].append(place)
    made: dict[int, Drawn] = {}
    for zone, places in by_zone.items():
        window = Window(zone, start, end) if zone else None
        known: dict[tuple[Any, ...], array[int]] = {}
        for place in places:
            created = start + timedelta(microseconds=rng.randrange(86_400_000_000))
            schedule = _bounded(rng, drawn[place], created, end)
            expected = _expected(schedule, created, end, window, known)
            if not expected and "end_at" in schedule:  # which the API refuses
                del schedule["end_at"]
                expected = _expected(schedule, created, end, window, known)
            task_id, body = UUID(int=rng.getrandbits(128)), _body(rng, schedule)
            made[place] = Drawn(task_id, us(created), body, expected)
    return [made[place] for place in range(count)]


def _schedule(rng: random.Random, share: float) -> dict[str, Any]:
    """Few run often, most run once a day or more rarely."""
    if share < 0.12:
        return {"every": rng.choice(EVERY_S if share > 0.001 else EVERY_OFTEN_S)}
    kinds = ((0.121, OFTEN), (0.123, HOURLY), (0.145, SEVERAL), (0.3, DAILY), (1.0, RARE))
    pool = next(pool for limit, pool in kinds if share < limit)
    schedule: dict[str, Any] = {"cron": rng.choice(pool), "timezone": rng.choice(ZONES)}
    if schedule["cron"] in ("30 2 * * *", "30 1 * * *") and rng.random() < 0.5:
        schedule["dst"] = rng.choice(DST)
    return schedule


def _bounded(
    rng: random.Random, schedule: dict[str, Any], created: datetime, end: datetime
) -> dict[str, Any]:
    """Some with limits, some with jitter."""
    bounded = dict(schedule)
    span = end - created
    if rng.random() < 0.1:
        bounded["start_at"] = (created + span * rng.uniform(-0.1, 0.5)).isoformat()
    if rng.random() < 0.1:
        bounded["end_at"] = (created + span * rng.uniform(0.6, 0.95)).isoformat()
    if rng.random() < 0.05:
        bounded["max_runs"] = rng.randrange(1, 200)
    if rng.random() < 0.2:
        bounded["jitter"] = rng.choice((0.5, 30, 600))
    return bounded


def _body(rng: random.Random, schedule: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "t", "schedule": schedule, "overrun": rng.choice(("skip", "skip", "queue")),
        "misfire_grace": rng.choice((None, None, None, 60, 3600)),
        "max_retries": rng.choice((0, 0, 1, 3)), "on_lost": rng.choice(("retry", "fail")),
        "backoff": {"kind": "fixed", "delay": rng.choice((5, 600, 20_000))},
    }  # fmt: skip


def _expected(
    schedule: dict[str, Any], created: datetime, end: datetime, window: Window | None,
    known: dict[tuple[Any, ...], "array[int]"],
) -> Sequence[int]:  # fmt: skip
    given = schedule.get("start_at")
    anchor = created if given is None else datetime.fromisoformat(given)
    first_us = us(max(anchor, created))
    last = end if "end_at" not in schedule else datetime.fromisoformat(schedule["end_at"])
    last_us = min(us(last), us(end))
    if window is None:
        period_us = round(schedule["every"] * 1_000_000)
        anchor_us = us(anchor)
        first_us += (anchor_us - first_us) % period_us
        if given is None:
            first_us += period_us
        return range(first_us, last_us + 1, period_us)
    dst = schedule.get("dst", {})
    key = (schedule["cron"], dst.get("gap"), dst.get("fold"))
    if key not in known:
        known[key] = array("q", map(us, fires(key[0], window, key[1], key[2])))
    found = known[key]
    return found[bisect.bisect_left(found, first_us) : bisect.bisect_right(found, last_us)]
