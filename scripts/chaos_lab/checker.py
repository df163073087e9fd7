"""Asks every rule. Imports nothing of duly."""

from collections import Counter
from pathlib import Path

from chaos_lab.evidence import Evidence, load
from chaos_lab.rules import RULES, Broken


def check(evidence: Evidence) -> list[Broken]:
    """Every breach, the gravest rules first; empty if all holds."""
    return [broken for rule in RULES for broken in rule(evidence)]


def check_folder(folder: Path) -> list[Broken]:
    """`check` what a run left in its folder."""
    return check(load(folder))


def tally(broken: list[Broken]) -> dict[str, int]:
    """Number of breaches of every rule, zeros included."""
    counts = Counter(one.rule for one in broken)
    return {rule.__name__: counts[rule.__name__] for rule in RULES}
