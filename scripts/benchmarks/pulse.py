"""Whether the machine itself stood still: some virtual machines run at a fraction of their speed, again and again.

A process of its own does the same small piece of work every few milliseconds and looks how much processor
time it takes. That does not grow while others use the processors, but it does while the processors are slow.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from benchmarks.figures import Figures, share
from benchmarks.processes import SCRIPTS
from benchmarks.rig import Start

_EVERY_S = 0.004
_WORK = 1_500  # some 40 µs: a hundredth of a processor
_SLOW = 3.0  # times the median; another process on the same core's other thread makes it 2 at most
_BEFORE_S = 0.02
"""What is due so soon after a slow time was prepared in it."""
_END_S = 10.0


class Beat(NamedTuple):
    """One piece of work. Times in seconds; `at` since 1970, `cpu_s` of processor time."""

    at: float
    took_s: float
    cpu_s: float


class Slow(NamedTuple):
    """From when to when the machine was slow, in seconds since 1970."""

    begin: float
    end: float


def slow_times(beats: Sequence[Beat]) -> list[Slow]:
    """The times around the pieces of work that took several times their median, in order."""
    if not beats:
        return []
    limit_s = _SLOW * statistics.median(beat.cpu_s for beat in beats)
    found: list[Slow] = []
    for before, beat in zip([beats[0], *beats], beats, strict=False):
        if beat.cpu_s <= limit_s:
            continue
        begin, end = before.at + before.took_s, beat.at + beat.took_s
        if found and begin <= found[-1].end:
            begin = found.pop().begin
        found.append(Slow(begin, end))
    return found


def speed_figures(beats: Sequence[Beat], starts: Sequence[Start]) -> Figures:
    """How much of the time the machine was slow, and p99 in ms of the tasks that no slow time touched."""
    if len(beats) < 2:
        return {}
    slow = slow_times(beats)
    ends = [one.end for one in slow]

    def is_touched(due: float, started: float) -> bool:
        at = bisect_left(ends, due - _BEFORE_S)
        return at < len(slow) and slow[at].begin < started

    lags_ms = sorted((s - due) * 1000 for due, s in starts if not is_touched(due, s))
    lasted_s = sum(one.end - one.begin for one in slow)
    told = {"slow_machine_percent": 100 * lasted_s / (beats[-1].at - beats[0].at)}
    return {"p99_ms_at_full_speed": share(lags_ms, 0.99), **told} if lags_ms else told


@asynccontextmanager
async def watched() -> AsyncIterator[list[Beat]]:
    """Take the machine's pulse; the list is filled at the end."""
    beats: list[Beat] = []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "benchmarks.pulse"),
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), _END_S)  # it has begun
        yield beats
        out, _ = await asyncio.wait_for(process.communicate(b""), _END_S)
        beats += [Beat(*one) for one in json.loads(out)]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _beat_until(ended: threading.Event) -> list[Beat]:
    beats: list[Beat] = []
    while not beats or not ended.wait(_EVERY_S):
        at, began, cpu_ns = time.time(), time.perf_counter(), time.thread_time_ns()
        sum(range(_WORK))
        cpu_s = (time.thread_time_ns() - cpu_ns) / 1e9
        beats.append(Beat(at, time.perf_counter() - began, cpu_s))
    return beats


def _main() -> None:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    print("begun", flush=True)
    print(json.dumps(_beat_until(ended)))


if __name__ == "__main__":
    _main()
