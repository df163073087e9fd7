"""duly next: when a schedule fires, without any node."""

import argparse
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec

from duly.nodes.cli import values
from duly.nodes.cli.errors import fail
from duly.wheel import schedule, zones
from duly.wheel.durations import parse_time, to_us
from duly.wheel.preview import COUNT_MAX, preview
from duly.wheel.schedule_fields import ScheduleError


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "next", help="show when a schedule fires",
        description="Show the next fire times of a cron expression, or of a fixed period (--every): "
        "what a node would compute. Each line has the time in UTC and on the zone's clock.",
    )  # fmt: skip
    parser.add_argument("cron", nargs="?", help="cron expression, such as '0 3 * * MON-FRI'; "
                        "six fields: seconds first")  # fmt: skip
    parser.add_argument("--every", metavar="DURATION",
                        help="seconds or an ISO 8601 duration, instead of cron")  # fmt: skip
    parser.add_argument("--tz", "--timezone", dest="timezone", metavar="ZONE",
                        help="IANA time zone of the expression (default: UTC)")  # fmt: skip
    parser.add_argument("--start-at", metavar="TIME", help="the schedule begins at this time")
    parser.add_argument("--after", metavar="TIME", help="fire times after this time (default: now)")
    parser.add_argument("-n", "--count", type=values.count, default=10, metavar="N",
                        help=f"fire times shown, at most {COUNT_MAX} (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_next)


def _next(args: argparse.Namespace) -> int:
    if args.count > COUNT_MAX:
        fail(f"--count: at most {COUNT_MAX}")
    try:
        after = datetime.now(UTC) if args.after is None else parse_time(args.after)
    except ValueError as error:
        fail(f"--after: {error}")
    body = {name: getattr(args, name) for name in ("cron", "timezone", "start_at")}
    try:
        checked = schedule.parse({**body, "every": values.duration(args.every)}, after)
    except ScheduleError as error:
        fail(f"{error.field}: {error.message}" if error.field else error.message)
    found = preview(checked, after, args.count)
    if args.json:
        print(msgspec.json.encode({"fire_times": found.fire_times, "notes": found.notes}).decode())
        return 0
    for time in found.fire_times:
        local = time.astimezone(_offset(args.timezone or "UTC", time))
        shown = time.isoformat().replace("+00:00", "Z")
        print(f"{shown}  {local:%a %Y-%m-%d %H:%M:%S %z}")
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _offset(zone_name: str, time: datetime) -> timezone:
    seconds = zones.zone(zone_name).offset(to_us(time) // 1_000_000)
    return timezone(timedelta(seconds=seconds))
