"""Measure a whole Duly on this machine, alone or in turns with peers.

Prints a JSON line for each run of each scenario to standard output, and a table of the medians to
standard error; with peers also the ratios. Ends with code 1 if anything is missing. See docs/benchmarks.md.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from benchmarks.environments import CannotInstallError
from benchmarks.peers.compare import compare, install
from benchmarks.peers.registry import OURS, PEERS
from benchmarks.peers.work import works
from benchmarks.picture import draw
from benchmarks.processes import run
from benchmarks.records import Record, print_line, ratio_table, record, table, tell
from benchmarks.rig import running
from benchmarks.scenarios import scenarios


def main() -> int:
    """Read the arguments and measure."""
    args = _arguments()
    try:
        records, wrong = _measure(args)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    tell("\n" + table(records))
    if args.peer:
        tell("\n" + ratio_table(records))
    if args.picture and records:
        try:
            draw(records, args.picture)
        except (CannotInstallError, RuntimeError) as error:
            wrong.append(str(error))
    for one in wrong:
        tell(one)
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names, peer_names = list(scenarios()), list(works())
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO",
                        help=f"which of {', '.join(names)} (default: all)")  # fmt: skip
    parser.add_argument("--peer", action="append", choices=PEERS, default=[],
                        help=f"beside this one, in turns; may be repeated ({', '.join(peer_names)})")  # fmt: skip
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run, a fraction of the size")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw an SVG or a PNG, too")
    parser.add_argument("--database-url", help="PostgreSQL (default: an embedded one)")
    parser.add_argument("--redis-url", help="Redis or Valkey (default: an embedded one)")
    args = parser.parse_args()
    if unknown := set(args.scenarios) - set(peer_names if args.peer else names):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    if (args.database_url is None) != (args.redis_url is None):
        parser.error("give both --database-url and --redis-url, or neither")
    if args.peer and args.database_url:
        parser.error("peers run on embedded servers only, each on empty ones")
    args.runs = 1 if args.quick else args.runs
    return args


def _measure(args: argparse.Namespace) -> tuple[list[Record], list[str]]:
    if not args.peer:
        return run(_measure_alone(args)), []
    chosen = {name: work for name, work in works(args.quick).items()
              if not args.scenarios or name in args.scenarios}  # fmt: skip
    peers, missing = install([OURS, *(PEERS[name] for name in dict.fromkeys(args.peer))])
    records, wrong = run(compare(peers, chosen, args.runs))
    return records, missing + wrong


async def _measure_alone(args: argparse.Namespace) -> list[Record]:
    records: list[Record] = []
    async with running(args.database_url, args.redis_url) as rig:
        for name, scenario in scenarios(args.quick).items():
            if args.scenarios and name not in args.scenarios:
                continue
            for _ in range(args.runs):
                records.append(record(name, await scenario.run(rig)))
                print_line(records[-1])
    return records


if __name__ == "__main__":
    sys.exit(main())
