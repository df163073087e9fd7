"""`python -m year`, with tests/support on the path."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="year", description="A year of many schedules in virtual time, against the oracle."
    )
    parser.add_argument("--schedules", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--days", type=float, default=365, help="for how long (default 365)")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn (default 1)")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of text are iterated over by their hashes: a seed must do the same again.
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(SUPPORT)}
        return subprocess.call([sys.executable, "-P", "-m", "year", *sys.argv[1:]], env=environment)
    from year.world import simulate

    figures = simulate(options.seed, options.schedules, options.days, tell=_tell)
    for name, count in sorted(figures.counts.items()):
        print(f"{name:<20} {count}")
    print(f"{options.schedules} schedules, {options.days:g} days, seed {options.seed}: "
          f"{len(figures.broken)} broken rules, trace {figures.trace:08x}, {figures.took_s:.0f} s")  # fmt: skip
    for rule in figures.broken:
        print(f"BROKEN {rule}")
    return 1 if figures.broken else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
