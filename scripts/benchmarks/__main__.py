"""Measure a whole Duly on this machine: rates, lag, a node's death, and the load at rest.

Prints a JSON line for each run of each scenario to standard output, and a table of the medians to
standard error. See docs/benchmarks.md.
"""

import argparse
import sys

import uvloop

from benchmarks.records import Record, print_line, record, table, tell
from benchmarks.rig import running
from benchmarks.scenarios import scenarios


def main() -> int:
    """Read the arguments and measure."""
    args = _arguments()
    records = uvloop.run(_measure(args))
    tell("\n" + table(records))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names = list(scenarios())
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO",
                        help=f"which of {', '.join(names)} (default: all)")  # fmt: skip
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run, a fraction of the size")
    parser.add_argument("--database-url", help="PostgreSQL (default: an embedded one)")
    parser.add_argument("--redis-url", help="Redis or Valkey (default: an embedded one)")
    args = parser.parse_args()
    if unknown := set(args.scenarios) - set(names):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    if (args.database_url is None) != (args.redis_url is None):
        parser.error("give both --database-url and --redis-url, or neither")
    args.runs = 1 if args.quick else args.runs
    return args


async def _measure(args: argparse.Namespace) -> list[Record]:
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
