"""The command: as many seeds as time allows, or one with all that happened in it."""

import argparse
import gc
import math
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

_CHUNK = 25
"""Seeds a process: their worlds stay in memory, 1 to 2 MB each, until it ends."""

_TOLD_EVERY_S = 10.0

_Verdicts = tuple[list[tuple[int, list[str], list[str]]], int, float]
"""Seeds that break rules, with their faults and those rules; how many were run; virtual seconds."""


def main(argv: Sequence[str]) -> int:
    """Run the command; answers 0 if every seed obeys the rules, 1 if one does not."""
    options = _parser().parse_args(argv)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of text are iterated over by their hashes: a seed must find the same ones again.
        support = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(filter(None, (support, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
        return subprocess.call([sys.executable, "-P", "-m", "simulated", *argv], env=environment)
    if options.seed is not None:
        return _show(options.seed)
    return _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulate", description="Simulate a cluster and its faults in virtual time."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long (default 60)")
    parser.add_argument("--seeds", type=int, help="so many seeds, however long it takes")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seed", type=int, help="one seed, with all that happened in it")
    return parser


def _show(seed: int) -> int:
    from simulated.world import simulate

    verdict = simulate(seed, keep_trace=True)
    print("\n".join(verdict.lines))
    print(f"seed {seed}: {verdict.plan}")
    print(f"trace {verdict.hash:08x}, {verdict.virtual_s:.1f} virtual seconds")
    for rule in verdict.broken:
        print(f"BROKEN {rule}")
    return 1 if verdict.broken else 0


def _run(options: argparse.Namespace) -> int:
    began = time.monotonic()
    told, count, virtual_s, failed = began, 0, 0.0, 0
    for broken, seeds, lived_s in _verdicts(options, began):
        count, virtual_s, failed = count + seeds, virtual_s + lived_s, failed + len(broken)
        for seed, kinds, rules in broken:
            print(f"seed {seed} ({', '.join(kinds)}) breaks:", *rules, sep="\n  ", flush=True)
        if time.monotonic() - told > _TOLD_EVERY_S:
            told = time.monotonic()
            print(f"{count} seeds, {failed} failed", flush=True)
    took_s = time.monotonic() - began
    print(
        f"{count} seeds in {took_s:.1f} s ({count / took_s:.0f}/s, {options.jobs} processes), "
        f"{virtual_s / 3600:.1f} virtual hours, {failed} failed"
    )
    if failed:
        print("one with all that happened in it: --seed SEED")
    return 1 if failed else 0


def _verdicts(options: argparse.Namespace, began: float) -> Iterator[_Verdicts]:
    """Of chunks of seeds, as they are done; new ones are begun while there is time."""
    import simulated.world  # noqa: F401 - once, for all processes

    gc.freeze()
    fork = multiprocessing.get_context("fork")
    at = options.first
    end = math.inf if options.seeds is None else at + options.seeds
    until = began + options.seconds if options.seeds is None else math.inf
    under_way: dict[Connection, multiprocessing.process.BaseProcess] = {}
    while True:
        while at < end and time.monotonic() < until and len(under_way) < options.jobs:
            seeds = range(at, round(min(at + _CHUNK, end)))
            here, there = fork.Pipe(duplex=False)
            process = fork.Process(target=_work, args=(there, seeds))
            process.start()
            there.close()
            under_way[here] = process
            at += _CHUNK
        if not under_way:
            return
        for done in wait(list(under_way)):
            assert isinstance(done, Connection)
            yield done.recv()
            under_way.pop(done).join()


def _work(results: Connection, seeds: range) -> None:
    # What a world holds is one knot of cycles. Untying it is a tenth of the work of making it, and
    # the end of the process does it for nothing.
    gc.disable()
    results.send(_chunk(seeds))


def _chunk(seeds: range) -> _Verdicts:
    from simulated.loop import START_S
    from simulated.world import simulate

    broken, lived_s = [], 0.0
    for seed in seeds:
        verdict = simulate(seed)
        lived_s += verdict.virtual_s - START_S
        if verdict.broken:
            broken.append((seed, sorted(verdict.plan.kinds), verdict.broken))
    return broken, len(seeds), lived_s
