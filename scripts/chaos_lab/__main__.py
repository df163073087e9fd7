"""Run a cluster through faults, and check that every rule held. See docs/chaos.md."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from postgres_pair import PostgresPair
from servers import discard, make_template, new_servers, remove_folder

from chaos_lab.checker import check_folder
from chaos_lab.cluster import Cluster
from chaos_lab.mutations import BUGS
from chaos_lab.run import Plan, Verdict, run
from chaos_lab.schedule import SORTS, plan


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=300.0, help="tasks a second (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of load and faults (%(default)s)")
    parser.add_argument("--fault-every", type=float, default=4.0, metavar="SECONDS",
                        help="mean time between faults (%(default)s)")  # fmt: skip
    parser.add_argument("--only", action="append", choices=SORTS, metavar="KIND",
                        help=f"only faults of this kind; may be repeated. One of: {', '.join(SORTS)}")  # fmt: skip
    parser.add_argument("--plant", action="append", choices=BUGS, metavar="BUG", default=[],
                        help=f"plant a bug in every node. One of: {', '.join(BUGS)}")  # fmt: skip
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the report there")
    parser.add_argument("--keep", type=Path, metavar="DIR",
                        help="keep the evidence there (kept anyway when anything is wrong)")  # fmt: skip
    parser.add_argument("--check", type=Path, metavar="DIR", help="only check kept evidence")
    args = parser.parse_args()
    if args.check:
        broken = check_folder(args.check)
        print("\n".join(map(str, broken)) or "every rule holds")
        return 1 if broken else 0
    folder = args.keep or Path(tempfile.mkdtemp(prefix="duly-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    seconds = args.minutes * 60
    faults = plan(args.seed, seconds, args.fault_every, args.only or tuple(SORTS))
    planned = Plan(args.seed, seconds, args.rate, faults)
    verdict = _run(planned, folder, args.plant)
    print(verdict.text)
    if args.report:
        args.report.write_text(verdict.text)
    if args.keep or verdict.broken or verdict.facts.crashes or verdict.facts.errors:
        print(f"evidence: {folder}, seed {args.seed}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return 1 if verdict.broken else 0


def _run(planned: Plan, folder: Path, bugs: Sequence[str]) -> Verdict:
    template = make_template()
    try:
        servers = new_servers(template)
    finally:
        remove_folder(template)
    try:
        pair = PostgresPair(servers.postgres)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                cluster = Cluster(servers, pair, folder, bugs=bugs)
                return runner.run(run(cluster, planned, _tell))
        finally:
            pair.close()
    finally:
        discard(servers)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
