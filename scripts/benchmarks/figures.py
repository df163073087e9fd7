"""Numbers: what a run answers, and what is made of several runs."""

import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

Figures = dict[str, float]

QUANTILES = (*(n / 100 for n in range(100)), 0.995, 0.999, 1.0)
"""The shares of the tasks for which a record tells the lag: enough to draw a curve of it."""


BIN_S = 0.25
"""Length of the times over which a rate is told."""


class Outcome(NamedTuple):
    """What one run of a scenario measured."""

    figures: Figures
    lags_ms: Sequence[float] = ()
    """Due to handler start, of every task, in rising order; empty where nothing ran."""
    starts_s: Sequence[float] = ()
    """When handlers started, in seconds since the first task was due."""


def share(ordered: Sequence[float], part: float) -> float:
    """The value that `part` (0 to 1) of the values, in rising order, do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def lag_figures(lags_ms: Sequence[float]) -> Figures:
    """p50, p99 and the most of lags in rising order, and how many began before they were due."""
    return {
        "p50_ms": share(lags_ms, 0.5),
        "p99_ms": share(lags_ms, 0.99),
        "max_ms": lags_ms[-1],
        "early": sum(lag < 0 for lag in lags_ms),
    }


def rates(starts_s: Sequence[float]) -> list[float]:
    """How many a second started in each quarter of a second, from the first due time on."""
    if not starts_s:
        return []
    counts = Counter(max(0, int(start / BIN_S)) for start in starts_s)
    return [counts[at] / BIN_S for at in range(max(counts) + 1)]


def medians(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over the runs that have it."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median(run[name] for run in runs if name in run) for name in names}


def ratios(ours: Figures, theirs: Figures) -> Figures:
    """Ours divided by theirs, for each figure that both have and that is not 0 there."""
    return {name: ours[name] / theirs[name] for name in ours if theirs.get(name)}


def machine() -> dict[str, Any]:
    """Where and when: load averages tell who else was at work."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "cpu": _cpu(),
        "load": [round(one, 2) for one in psutil.getloadavg()],
    }


@cache
def _cpu() -> str:
    about = Path("/proc/cpuinfo")  # Linux
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
