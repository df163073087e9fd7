"""What a run leaves behind: a JSON line to standard output, and tables to standard error."""

import json
import sys
from collections.abc import Iterable
from typing import Any

from benchmarks.figures import (
    QUANTILES,
    Figures,
    Outcome,
    machine,
    medians,
    rates,
    ratios,
    share,
)

Record = dict[str, Any]

OURS = "duly"


def record(scenario: str, outcome: Outcome, system: str = OURS) -> Record:
    """One run as plain JSON values."""
    made: Record = {"scenario": scenario, "system": system}
    made["figures"] = {name: round(value, 2) for name, value in outcome.figures.items()}
    if outcome.lags_ms:
        made["tasks"] = len(outcome.lags_ms)
        made["lag_quantiles_ms"] = [round(share(outcome.lags_ms, part), 2) for part in QUANTILES]
    if outcome.starts_s:
        made["rates"] = rates(outcome.starts_s)
    return {**made, **machine()}


def print_line(made: Record) -> None:
    """To standard output, at once."""
    print(json.dumps(made), flush=True)


def by_scenario(records: Iterable[Record]) -> dict[str, dict[str, list[Record]]]:
    """Records by scenario, and of each by system, in the order in which they came."""
    found: dict[str, dict[str, list[Record]]] = {}
    for one in records:
        found.setdefault(one["scenario"], {}).setdefault(one["system"], []).append(one)
    return found


def table(records: Iterable[Record]) -> str:
    """Median, least and most of every figure."""
    lines = [f"{'scenario':<16}{'system':<15}{'figure':<24}{'median':>12}{'least':>12}{'most':>12}"]
    for scenario, systems in by_scenario(records).items():
        for system, runs in systems.items():
            figures: list[Figures] = [one["figures"] for one in runs]
            for name, median in medians(figures).items():
                values = [run[name] for run in figures if name in run]
                shown = (median, min(values), max(values))
                columns = "".join(f"{value:>12,.1f}" for value in shown)
                lines.append(f"{scenario:<16}{system:<15}{name:<24}{columns}")
    return "\n".join(lines)


def ratio_table(records: Iterable[Record]) -> str:
    """Our median of every figure divided by each peer's."""
    lines = [f"{'scenario':<16}{'figure':<24}{'against':<15}{'ours':>12}{'theirs':>12}{'ratio':>9}"]
    for scenario, systems in by_scenario(records).items():
        middle = {system: medians([one["figures"] for one in runs])
                  for system, runs in systems.items()}  # fmt: skip
        ours = middle.pop(OURS, {})
        for system, theirs in middle.items():
            for name, ratio in ratios(ours, theirs).items():
                columns = f"{ours[name]:>12,.1f}{theirs[name]:>12,.1f}{ratio:>9.2f}"
                lines.append(f"{scenario:<16}{name:<24}{system:<15}{columns}")
    return "\n".join(lines)


def tell(text: str) -> None:
    """To standard error, for people."""
    print(text, file=sys.stderr, flush=True)
