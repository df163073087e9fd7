"""From records to charts, and from charts to an image: the curve of the lag, and rates over time.

    python -m benchmarks.picture RECORDS.jsonl IMAGE     (SVG or PNG; PYTHONPATH is the folder scripts)

matplotlib draws, in an environment of its own.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.environments import CannotInstallError, environment
from benchmarks.figures import BIN_S, QUANTILES
from benchmarks.records import Record, by_scenario

_MATPLOTLIB = "matplotlib==3.11.2"  # draws text, axes and legends better than anything by hand
_DRAW = Path(__file__).with_name("draw.py")
_DRAW_S = 120
_LEAST_MS = 0.1
"""Where the logarithmic axis of the lag begins."""

_OVER_TIME = ("drain", "mixed", "failover")


class Line(NamedTuple):
    """One line of a chart."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


class Chart(NamedTuple):
    """One pair of axes."""

    title: str
    x: str
    y: str
    x_is_logarithmic: bool
    lines: Sequence[Line]


def charts(records: Iterable[Record]) -> list[Chart]:
    """The charts of these records: one system's lags share axes, several systems' have their own."""
    found = by_scenario(records)
    lagged = {name: systems for name, systems in found.items() if name.startswith("lag_")}
    drawn: list[Chart] = []
    if lagged and max(len(systems) for systems in lagged.values()) == 1:
        lines = [_lag_line(f"{name[4:]} a second", runs)
                 for name, systems in lagged.items() for runs in systems.values()]  # fmt: skip
        drawn.append(_lag_chart("Start after the due time", lines))
    else:
        drawn += [
            _lag_chart(f"Start after the due time, {name[4:]} a second",
                       [_lag_line(system, runs) for system, runs in systems.items()])
            for name, systems in lagged.items()
        ]  # fmt: skip
    for name in _OVER_TIME:
        if name in found:
            lines = [_rate_line(system, runs) for system, runs in found[name].items()]
            title = f"Starts a second: {name}"
            drawn.append(Chart(title, "seconds since the first was due", "tasks/s", False, lines))
    return drawn


def _lag_chart(title: str, lines: Sequence[Line]) -> Chart:
    return Chart(title, "milliseconds", "% of the tasks have started", True, lines)


def _lag_line(name: str, runs: Sequence[Record]) -> Line:
    """The median of all runs at each share of the tasks."""
    curves = zip(*(run["lag_quantiles_ms"] for run in runs), strict=True)
    lags_ms = [max(_LEAST_MS, statistics.median(values)) for values in curves]
    p50, p99 = (lags_ms[QUANTILES.index(part)] for part in (0.5, 0.99))
    label = f"{name}: p50 {_short(p50)}, p99 {_short(p99)}"
    return Line(label, lags_ms, [100 * part for part in QUANTILES])


def _rate_line(name: str, runs: Sequence[Record]) -> Line:
    """The run that took the median time."""
    middle = sorted((run["rates"] for run in runs), key=len)[len(runs) // 2]
    return Line(name, [(at + 0.5) * BIN_S for at in range(len(middle))], middle)


def _short(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def footer(records: Sequence[Record]) -> str:
    """Which machine, when, and how busy."""
    first, loads = records[0], [one["load"][0] for one in records]
    runs = max(len(runs) for systems in by_scenario(records).values() for runs in systems.values())
    many = "one run each" if runs == 1 else f"medians of {runs} runs"
    return (
        f"{first['at'][:10]}, {first['cores']} cores ({first['cpu']}), {first['memory_gb']} GiB, "
        f"load average {min(loads):.1f} to {max(loads):.1f}; {many}. "
        "Client, nodes, workers, PostgreSQL and Redis share the cores."
    )


def draw(records: Sequence[Record], image: Path) -> None:
    """Write the picture of these records; the kind is that of the file's name.

    Raises CannotInstallError, and RuntimeError if it cannot be drawn.
    """
    made = charts(records)
    if not made:
        raise RuntimeError("there is nothing to draw: no lag, and no rate over time")
    python = environment("picture", [_MATPLOTLIB])
    order = {"charts": [_plain(chart) for chart in made], "footer": footer(records)}
    done = subprocess.run(
        [python, "-P", _DRAW, image.absolute()],
        input=json.dumps(order),
        text=True,
        capture_output=True,
        timeout=_DRAW_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the picture was not drawn: {done.stderr.strip()}")


def _plain(chart: Chart) -> dict[str, object]:
    return {**chart._asdict(), "lines": [line._asdict() for line in chart.lines]}


def main() -> int:
    """Draw kept records."""
    kept, image = sys.argv[1:]
    lines = Path(kept).read_text().splitlines()
    try:
        draw([json.loads(line) for line in lines if line.startswith("{")], Path(image))
    except (CannotInstallError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
