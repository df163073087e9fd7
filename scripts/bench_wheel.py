"""Measure the timing wheel beside a heap of the same contract; prints one JSON line per figure.

    python scripts/bench_wheel.py [--entries 1000000] [--rounds 5]

Each round runs in a fresh process; a figure is the median of the rounds. Keys are 16 random
bytes, values `(version, slot, priority, queue)`. `arrival` says in which order the entries came:
`by due`, as the prefetcher reads them, so that neighbours in time are neighbours in memory, or
`random`, the worst case for the processor's caches. `ticks` steps 10 ms at a time through 120 s
(1 s at a time through 24 h); `catch-up` is one stall, taken in bites of 1000.
"""

import argparse
import gc
import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple, Protocol

import psutil

from duly.wheel.wheel import Wheel

START_US = 1_790_000_000_000_000
SPANS_S = {"120 s": 120, "24 h": 86_400}
TICKS_US = {"120 s": 10_000, "24 h": 1_000_000}
BITE = 1_000
CHUNK = 1_000  # rows are made outside the measured time, a chunk at a time

Value = tuple[int, int, int, str]
Fired = tuple[int, bytes, Value]


class Timers(Protocol):
    """What both contenders can do."""

    def insert(self, key: bytes, due_us: int, value: Value) -> None: ...
    def cancel(self, key: bytes) -> bool: ...
    def advance(self, now_us: int, limit: int | None = None) -> list[Fired]: ...


class Heap:
    """The obvious alternative: heapq, an index, and cancelled entries left in the heap."""

    def __init__(self, start_us: int) -> None:
        self._heap: list[tuple[int, int, bytes, Value]] = []
        self._live: dict[bytes, int] = {}
        self._arrivals = start_us

    def insert(self, key: bytes, due_us: int, value: Value) -> None:
        self._arrivals += 1
        self._live[key] = self._arrivals
        heappush(self._heap, (due_us, self._arrivals, key, value))

    def cancel(self, key: bytes) -> bool:
        return self._live.pop(key, None) is not None

    def advance(self, now_us: int, limit: int | None = None) -> list[Fired]:
        fired: list[Fired] = []
        heap, live = self._heap, self._live
        while heap and heap[0][0] <= now_us and len(fired) != limit:
            due_us, arrival, key, value = heappop(heap)
            if live.get(key) == arrival:
                del live[key]
                fired.append((due_us, key, value))
        return fired


class Plan(NamedTuple):
    """One process's work."""

    contender: str
    span: str
    arrival: str
    entries: int
    seed: int


CONTENDERS: dict[str, Callable[[int], Timers]] = {"wheel": Wheel, "heap": Heap}


def rows(plan: Plan) -> Iterator[list[tuple[bytes, int, Value]]]:
    """The entries, in chunks; the same for the same plan."""
    random = Random(plan.seed)
    span_us = SPANS_S[plan.span] * 1_000_000
    dues_us = [START_US + 1 + random.randrange(span_us) for _ in range(plan.entries)]
    if plan.arrival == "by due":
        dues_us.sort()
    for first in range(0, plan.entries, CHUNK):
        chunk = []
        for number, due_us in enumerate(dues_us[first : first + CHUNK], first):
            value = (1_000_000 + number, number % 256, 5, "default")
            chunk.append((random.randbytes(16), due_us, value))
        yield chunk


def fill(plan: Plan) -> tuple[Timers, float]:
    """A contender with all entries, and the seconds its inserts took."""
    timers = CONTENDERS[plan.contender](START_US)
    spent_s = 0.0
    for chunk in rows(plan):
        began = time.perf_counter()
        for key, due_us, value in chunk:
            timers.insert(key, due_us, value)
        spent_s += time.perf_counter() - began
    return timers, spent_s


def full_collection_ms() -> float:
    """The longest of five full collections, each of which stops the process."""
    pauses_s = []
    for _ in range(5):
        began = time.perf_counter()
        gc.collect()
        pauses_s.append(time.perf_counter() - began)
    return max(pauses_s) * 1_000


def run_fill_and_ticks(plan: Plan) -> dict[str, float]:
    gc.collect()
    empty_ms = full_collection_ms()
    rss = psutil.Process().memory_info().rss
    timers, insert_s = fill(plan)
    figures = {
        "inserts_per_s": plan.entries / insert_s,
        "rss_mb": (psutil.Process().memory_info().rss - rss) / 1e6,
        "gc_pause_ms": full_collection_ms(),
        "gc_pause_empty_ms": empty_ms,
    }
    fired = 0
    longest_s = 0.0
    tick_us = TICKS_US[plan.span]
    began = before = time.perf_counter()
    for now_us in range(START_US, START_US + SPANS_S[plan.span] * 1_000_000 + 2 * tick_us, tick_us):
        fired += len(timers.advance(now_us))
        after = time.perf_counter()
        longest_s = max(longest_s, after - before)
        before = after
    assert fired == plan.entries
    figures["expiries_per_s_ticks"] = plan.entries / (before - began)
    figures["longest_tick_ms"] = longest_s * 1_000
    return figures


def run_catch_up(plan: Plan) -> dict[str, float]:
    timers, _ = fill(plan)
    now_us = START_US + 10 * SPANS_S[plan.span] * 1_000_000
    fired = 0
    began = time.perf_counter()
    while bite := timers.advance(now_us, BITE):
        fired += len(bite)
    spent_s = time.perf_counter() - began
    assert fired == plan.entries
    return {"expiries_per_s_catch_up": plan.entries / spent_s}


def run_changes(plan: Plan) -> dict[str, float]:
    """Every entry rescheduled once, then cancelled, in the order of arrival."""
    timers, _ = fill(plan)
    spent_s = {"reschedules_per_s": 0.0, "cancels_per_s": 0.0}
    for chunk in rows(plan):
        began = time.perf_counter()
        for key, due_us, value in chunk:
            timers.insert(key, due_us + 1_000_003, value)
        spent_s["reschedules_per_s"] += time.perf_counter() - began
    for chunk in rows(plan):
        began = time.perf_counter()
        for key, _, _ in chunk:
            timers.cancel(key)
        spent_s["cancels_per_s"] += time.perf_counter() - began
    return {name: plan.entries / seconds for name, seconds in spent_s.items()}


Measurement = Callable[[Plan], dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(
        json.dumps(
            {"python": platform.python_version(), "entries": args.entries, "rounds": args.rounds}
        )
    )
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as fresh_process:
        for contender, span, arrival, measure in work():
            plans = [
                Plan(contender, span, arrival, args.entries, seed) for seed in range(args.rounds)
            ]
            report(plans[0], list(fresh_process.map(measure, plans)))


def work() -> Iterator[tuple[str, str, str, Measurement]]:
    """What is measured: everything that can differ."""
    for contender in CONTENDERS:
        for span in SPANS_S:
            for arrival in ("by due", "random"):
                yield contender, span, arrival, run_fill_and_ticks
                yield contender, span, arrival, run_catch_up
        yield contender, "120 s", "by due", run_changes


def report(plan: Plan, rounds: list[dict[str, float]]) -> None:
    """Print the median of each figure."""
    for name in rounds[0]:
        median = statistics.median(figures[name] for figures in rounds)
        line = {
            "contender": plan.contender,
            "span": plan.span,
            "arrival": plan.arrival,
            "figure": name,
            "median": round(median, 2) if median < 1_000 else round(median),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
