"""duly simulate: a file of schedules in virtual time, without any server."""

import argparse
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from duly.nodes.cli import values
from duly.nodes.cli.declared import declarations
from duly.nodes.cli.errors import fail
from duly.nodes.declared.findings import Effect, Findings, find, utc
from duly.nodes.declared.playing import Outage, player
from duly.wheel.durations import parse_duration, parse_time

_DAYS = 7


def add_to(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "simulate", help="play a file of schedules in virtual time",
        description="Play the schedules of a file (see `duly apply`) without any server, by the code that nodes "
        "decide by: how often each runs, which occurrences overlap, the fullest minutes, changes of the "
        "clock, and what an outage does under each policy.",
    )  # fmt: skip
    parser.add_argument(
        "file", metavar="FILE", help="TOML, or JSON (FILE.json); - for standard input"
    )
    parser.add_argument(
        "--from", dest="begin", metavar="TIME", help="when the tasks are made (default: now)"
    )
    parser.add_argument(
        "--to", dest="end", metavar="TIME", help=f"the end (default: {_DAYS} days later)"
    )
    parser.add_argument("--duration", type=values.duration, default=0.0, metavar="DURATION", help="how long a run "
                        "takes where the file has no expected_duration (default: 0)")  # fmt: skip
    parser.add_argument(
        "--outage", metavar="FROM..TO", help="nothing is dispatched or recorded between these times"
    )
    parser.add_argument("--top", type=values.count, default=5, metavar="N",
                        help="how many of the fullest minutes are shown (default: %(default)s)")  # fmt: skip
    parser.add_argument("--limit", type=values.count, default=500_000, metavar="N",
                        help="occurrences that are played at most (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_simulate)


def _simulate(args: argparse.Namespace) -> int:
    begin = (
        datetime.fromtimestamp(time.time(), UTC)
        if args.begin is None
        else _time("--from", args.begin)
    )
    end = begin + timedelta(days=_DAYS) if args.end is None else _time("--to", args.end)
    if end <= begin:
        fail("--to must be later than --from")
    try:
        usual_s = parse_duration(args.duration)
    except ValueError as error:
        fail(f"--duration: {error}")
    declared = declarations(args.file, now=begin)
    players = [player(one, begin, usual_s) for one in declared.tasks.values()]
    outage = None if args.outage is None else _outage(args.outage)
    found = find(players, begin, end, outage, top=args.top, limit=args.limit)
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        _show(found, outage)
    return 0


def _time(option: str, text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError as error:
        fail(f"{option}: {error}")


def _outage(text: str) -> Outage:
    begin, dots, end = text.partition("..")
    if not dots:
        fail(f"--outage {text!r}: write FROM..TO")
    outage = Outage(_time("--outage", begin), _time("--outage", end))
    if outage.end <= outage.begin:
        fail("--outage: its end must be later than its beginning")
    return outage


def _show(found: Findings, outage: Outage | None) -> None:
    print(f"from {utc(found.begin)} to {utc(found.end)}: {len(found.schedules)} schedules, "
          f"{found.runs} runs, {found.skipped} skipped")  # fmt: skip
    if not found.complete:
        print(f"stopped at --limit: this is not all; the counts are up to {utc(found.until)}")
    if found.most_at is not None:
        print(f"at most {found.most_at_once} at once, first at {utc(found.most_at)}")
    width = max((len(name) for name in found.schedules), default=0)
    print(
        f"\n{'':{width}}  {'runs':>8}  {'skipped':>8}  {'overlaps':>8}  {'late':>8}  longest delay"
    )
    for name, one in found.schedules.items():
        print(f"{name:{width}}  {one.runs:>8}  {sum(one.skipped.values()):>8}  {one.overlaps:>8}  "
              f"{one.late:>8}  {one.longest_delay_s:g} s")  # fmt: skip
    if found.herds:
        print("\nfullest minutes")
        for herd in found.herds:
            print(f"{utc(herd.minute)}  {herd.runs:>8}  {', '.join(herd.names)}")
    if found.clock_changes:
        print("\nchanges of the clock")
        for change in found.clock_changes:
            print(f"{change.name}: {change.note}")
    if outage is not None:
        print(f"\noutage from {utc(outage.begin)} to {utc(outage.end)}")
        for effect in found.outage:
            print(_line(effect, width))


def _line(effect: Effect, width: int) -> str:
    grace = "" if effect.misfire_grace is None else f", misfire_grace {effect.misfire_grace:g} s"
    policy = f"overrun {effect.overrun}{grace}{' (declared)' if effect.declared else ''}"
    caught = "" if effect.caught_up_at is None else f", caught up at {utc(effect.caught_up_at)}"
    return (f"{effect.name:{width}}  {policy}: due in it {effect.due}, run late {effect.run_late}, "
            f"skipped {effect.skipped}{caught}")  # fmt: skip
