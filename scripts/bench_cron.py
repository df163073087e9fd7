"""Measure how fast the next fire times of cron expressions are found; prints one JSON line each.

    python scripts/bench_cron.py [--rounds 5] [--steps 20000]

`next per second` walks from one fire time to the next, from 2026 on and anew every ten years, on
one core, by the `Plan` that nodes compute with; the median of the rounds, in processor time. `first_ms` is the time from a text to its first fire time, with
nothing cached: what a submission costs. The last ones are slow on purpose: rare dates, dates that
never come, and the longest expressions accepted.
"""

import argparse
import contextlib
import json
import platform
import statistics
import time
from datetime import UTC, datetime, timedelta

from duly.wheel import schedule, zones
from duly.wheel.cron import Cron
from duly.wheel.cron_fields import EXPRESSION_MAX, CronError
from duly.wheel.zones import zone

START = datetime(2026, 9, 21, tzinfo=UTC)
END = START + timedelta(days=3653)

COMMON = (
    "* * * * *", "*/5 * * * *", "0 * * * *", "0 3 * * *", "30 2 * * *", "0 9-17 * * MON-FRI",
    "0 0 * * SUN", "0 0 1 * *", "0 0 L * *", "0 8 * * 1#1", "*/10 * * * * *",
)  # fmt: skip
RARE = (
    "0 0 29 2 *", "0 0 29 2 */7", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 4,6 5#5",
    "*/15 2 * 3 7L", "0 2 25-31/6 3 */7",
    ",".join(str(n) for n in range(60)) + " * " + ",".join(str(n) for n in range(1, 32)) + " * *",
    ("0-59/1," * 40)[:280] + "0 * * * *",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin")


def per_second(expression: str, place: str, steps: int) -> float:
    """Fire times found in a second, each from the one before."""
    plan = schedule.Plan(schedule.parse({"cron": expression, "timezone": place}, START), START)
    at, begun = START, time.process_time()
    for _ in range(steps):
        following = plan.after(at)
        at = START if following is None or following > END else following
    return steps / (time.process_time() - begun)


def first_ms(expression: str, place: str) -> float:
    """Milliseconds from the text to the first fire time, or to the refusal, with cold caches."""
    zones.zone.cache_clear()
    fresh = zone(place)
    begun = time.process_time()
    with contextlib.suppress(CronError):  # the time of a refusal counts too
        Cron(expression, fresh).after(int(START.timestamp()))
    return (time.process_time() - begun) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    asked = parser.parse_args()
    print(json.dumps({"python": platform.python_version(), "tzdata": zones.VERSION}))
    for expression in (*COMMON, *RARE):
        assert len(expression) <= EXPRESSION_MAX
        for place in ZONES:
            figure: dict[str, object] = {"expression": expression[:40], "zone": place}
            cold = [first_ms(expression, place) for _ in range(asked.rounds)]
            figure["first_ms"] = round(statistics.median(cold), 3)
            if expression in COMMON:
                rates = [per_second(expression, place, asked.steps) for _ in range(asked.rounds)]
                figure["next_per_second"] = round(statistics.median(rates))
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
