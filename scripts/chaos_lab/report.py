"""The report of a run, as Markdown."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from chaos_lab import figures
from chaos_lab.checker import tally
from chaos_lab.evidence import Evidence
from chaos_lab.rules import Broken

_SHOWN = 20


class Facts(NamedTuple):
    """What the evidence does not tell."""

    seed: int
    minutes: float
    rate: float
    faults: dict[str, int]
    crashes: list[str]
    errors: Counter[str]
    folder: Path


def text(facts: Facts, evidence: Evidence, broken: list[Broken]) -> str:
    """Everything about one run."""
    counts = tally(broken)
    lags = figures.lags(evidence)
    late = f"{lags.p50 * 1000:.1f} ms / {lags.p99 * 1000:.0f} ms / {lags.largest:.1f} s"
    ended = Counter(final.status for finals in evidence.finals.values() for final in finals)
    outcomes = Counter(run.outcome for runs in evidence.runs.values() for run in runs)
    accepted = sum(task.accepted is True for task in evidence.tasks.values())
    unsure = sum(task.accepted is None for task in evidence.tasks.values())
    lines = [
        f"# Chaos run, seed {facts.seed}: {'rules are broken' if broken else 'every rule holds'}",
        "",
        f"{facts.minutes:g} minutes at {facts.rate:g} tasks/s, {sum(facts.faults.values())} faults.",
        "",
        "| | |",
        "|---|---|",
        f"| tasks accepted | {accepted} |",
        f"| submissions without a clear answer | {unsure} |",
        f"| ended | {_counts(ended)} |",
        f"| attempts | {_counts(outcomes)} |",
        f"| cancels, changes | {len(evidence.cancels)}, {len(evidence.changes)} |",
        f"| effects through exactly_once | {len(evidence.effects)} |",
        f"| lost | {counts['lost']} |",
        f"| recorded twice | {counts['twice']} |",
        f"| stuck | {counts['stuck']} |",
        f"| effects doubled or missing | {counts['effects']} |",
        f"| early | {counts['early']} |",
        *(f"| broken: {rule} | {counts[rule]} |" for rule in counts if rule not in _NAMED),
        f"| handlers begun twice under one token | {figures.repeats(evidence)} |",
        f"| nodes that ended by themselves | {len(facts.crashes)} |",
        f"| errors in the nodes' logs | {sum(facts.errors.values())} |",
        f"| lag from due to start, p50 / p99 / max | {late} |",
        "",
        "How late were the tasks that came due in the second after a fault began:",
        "",
        "| fault | times | median | most |",
        "|---|---|---|---|",
        *(
            f"| {one.fault} | {one.measured} | {one.median:.2f} s | {one.largest:.2f} s |"
            for one in figures.recoveries(evidence, facts.folder)
        ),
    ]
    if broken or facts.crashes or facts.errors:
        shown = [f"- {one.rule}: task {one.id or '-'}: {one.detail}" for one in broken[:_SHOWN]]
        lines += ["", f"Evidence: {facts.folder}, seed {facts.seed}.", "", *shown]
        lines += [f"- a node ended by itself: {crash}" for crash in facts.crashes]
        lines += [f"- {count} times: {error}" for error, count in facts.errors.most_common(_SHOWN)]
    return "\n".join(lines) + "\n"


_NAMED = ("lost", "twice", "stuck", "effects", "early")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common()) or "none"
