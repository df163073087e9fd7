"""What a seed does to the calls of one store, and the trace of all that happened."""

import random
import zlib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["fine", "refused", "lost", "unanswered", "late", "slow"]
"""refused: nothing was sent. lost: sent, never arrived. unanswered: done, its answer was lost.
late: its answer was given up and it is done after that."""


class InjectedCrash(Exception):  # noqa: N818 - not an error of the product
    """Raised into an actor from within a call."""


Fate = tuple[Kind, float, float]
"""What becomes of one call: its kind; it arrives after so many seconds, its answer so many later."""


@dataclass
class Chances:
    """Probabilities per call."""

    refused: float = 0.0
    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    slow: float = 0.0
    slowest_s: float = 3.0


class Faults:
    """Draws the fate of each call."""

    def __init__(self, rng: random.Random, chances: Chances, latency_s: float) -> None:
        self._rng = rng
        self._latency_s = latency_s
        self._steps: list[tuple[float, Kind]] = []
        self._total = 0.0
        self.set(chances)

    def set(self, chances: Chances) -> None:
        """From now on."""
        self._slowest_s = chances.slowest_s
        self._steps, self._total = [], 0.0
        kinds: tuple[Kind, ...] = ("refused", "lost", "unanswered", "late", "slow")
        for kind in kinds:
            chance: float = getattr(chances, kind)
            if chance:
                self._total += chance
                self._steps.append((self._total, kind))

    def fate(self) -> Fate:
        """Of the next call."""
        drawn = self._rng.random()
        request_s = self._latency_s * (0.5 + drawn)
        if drawn >= self._total:
            return "fine", request_s, 0.0
        kind = next(kind for limit, kind in self._steps if drawn < limit)
        request_s = self._latency_s * (0.5 + self._rng.random())
        answer_s = 0.0
        if kind in ("slow", "late", "unanswered"):
            request_s += self._rng.random() * self._slowest_s * self._rng.choice((0.01, 0.1, 1.0))
            answer_s = self._rng.random() * self._slowest_s * self._rng.choice((0.01, 0.1, 1.0))
        return kind, request_s, answer_s

    def uniform(self, most: float) -> float:
        """Draw a number from 0 to `most`."""
        return self._rng.random() * most

    def chance(self, probability: float) -> bool:
        """Draw."""
        return self._rng.random() < probability


class Trace:
    """A running hash of what happened; the lines too, if they are wanted."""

    def __init__(self, keep: bool = False) -> None:
        self.lines: list[str] | None = [] if keep else None
        self.hash = 0

    def note(self, now: float, who: str, what: str) -> None:
        """One thing that happened."""
        line = f"{now:.6f} {who} {what}"
        self.hash = zlib.crc32(line.encode(), self.hash)
        if self.lines is not None:
            self.lines.append(line)
