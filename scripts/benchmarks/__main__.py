"""Measure a whole Duly on this machine: submit and drain rates, lag, and the load at rest.

Prints a JSON line for each run of each measure to standard output, and a table of the medians to
standard error. See docs/performance.md.
"""

import argparse
import json
import statistics
import sys

import uvloop
from measures import QUICK, Figures, Sizes, machine, measures
from rig import running


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    names = list(measures(Sizes()))
    parser.add_argument("measures", nargs="*", metavar="MEASURE",
                        help=f"which of {', '.join(names)} (default: all)")  # fmt: skip
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one run, a fraction of the size")
    parser.add_argument("--database-url", help="PostgreSQL (default: an embedded one)")
    parser.add_argument("--redis-url", help="Redis or Valkey (default: an embedded one)")
    args = parser.parse_args()
    if unknown := set(args.measures) - set(names):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    if (args.database_url is None) != (args.redis_url is None):
        parser.error("give both --database-url and --redis-url, or neither")
    uvloop.run(_measure(args))


async def _measure(args: argparse.Namespace) -> None:
    sizes, runs = (QUICK, 1) if args.quick else (Sizes(), args.runs)
    taken: dict[str, list[Figures]] = {}
    async with running(args.database_url, args.redis_url) as rig:
        for name, measure in measures(sizes).items():
            if args.measures and name not in args.measures:
                continue
            for _ in range(runs):
                figures = await measure(rig)
                taken.setdefault(name, []).append(figures)
                rounded = {key: round(value, 2) for key, value in figures.items()}
                print(json.dumps({"measure": name, **rounded, **machine()}), flush=True)
    _print_table(taken)


def _print_table(taken: dict[str, list[Figures]]) -> None:
    print(
        f"\n{'measure':<16}{'figure':<24}{'median':>12}{'least':>12}{'most':>12}", file=sys.stderr
    )
    for name, runs in taken.items():
        for key in runs[0]:
            values = [run[key] for run in runs]
            shown = (statistics.median(values), min(values), max(values))
            columns = "".join(f"{value:>12,.1f}" for value in shown)
            print(f"{name:<16}{key:<24}{columns}", file=sys.stderr)


if __name__ == "__main__":
    main()
