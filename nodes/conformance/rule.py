"""What a rule is: a number, what it says, and a coroutine that tries a worker by it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from duly.nodes.conformance.bench import Bench

Verdict = Literal["pass", "fail", "not tried"]

Need = Literal["process", "proxy", "server"]
"""What trying a rule takes: the worker's process, all its connections, or a Redis of the kit's own."""

Trial = Callable[["Bench"], Awaitable[None]]


class Broken(Exception):  # noqa: N818 - a finding, not an error of the program
    """The worker broke the rule; the text says how."""


class NotTried(Exception):  # noqa: N818 - likewise
    """The rule cannot be tried on this worker; the text says why."""


class Rule(NamedTuple):
    """One rule of the workers' protocol."""

    number: str
    """The section of docs/worker-protocol.md that it is from, and a number of its own."""
    title: str
    """What a worker does."""
    needs: frozenset[Need]
    trial: Trial
    """Raises Broken or NotTried; returns if the worker keeps the rule."""


class Finding(NamedTuple):
    """What became of one rule."""

    rule: Rule
    verdict: Verdict
    detail: str
    """Why it failed or was not tried; empty if it passed."""
    seconds: float
    """How long the trial took."""


RULES: Final[dict[str, Rule]] = {}
"""Every rule by its number; filled when the modules with the trials are imported."""


def rule(number: str, title: str, *needs: Need) -> Callable[[Trial], Trial]:
    """Register the decorated trial as a rule."""

    def register(trial: Trial) -> Trial:
        assert number not in RULES
        RULES[number] = Rule(number, title, frozenset(needs), trial)
        return trial

    return register


def need(condition: bool, otherwise: str) -> None:
    """Raise Broken with `otherwise` unless the condition holds."""
    if not condition:
        raise Broken(otherwise)


def skip(reason: str) -> None:
    """Raise NotTried."""
    raise NotTried(reason)
