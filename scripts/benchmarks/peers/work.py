"""The scenarios that can be given to any peer; named as those of `scripts/bench`."""

import time
from dataclasses import dataclass
from typing import Protocol

from benchmarks.figures import Outcome
from benchmarks.peers.peer import Running, Traits
from benchmarks.pulse import speed_figures, watched
from benchmarks.rig import Start
from benchmarks.scenarios import tasks
from benchmarks.scenarios.drain import WORKERS
from benchmarks.scenarios.tasks import HOUR_S, PATIENCE_S, outcome_of


class Work(Protocol):
    """One thing to measure of a peer that has been started on empty servers."""

    async def run(self, peer: Running, traits: Traits) -> Outcome:
        """Measure it once. Raises TimeoutError if the peer does not get done."""


def works(quick: bool = False) -> dict[str, Work]:
    """Every scenario for peers by name."""
    lag_s = 3 if quick else 10
    return {
        "submit_single": Submit(1_000 if quick else 3_000, single=True),
        "submit_batch": Submit(5_000 if quick else 20_000, single=False),
        "drain": Drain(5_000 if quick else 20_000),
        **{f"lag_{rate}": Lag(rate, lag_s) for rate in (100, 500, 1_000, 2_000)},
    }


@dataclass(frozen=True)
class Submit:
    """Tasks an hour out, in the largest batches or one by one; no worker."""

    count: int
    single: bool

    async def run(self, peer: Running, traits: Traits) -> Outcome:
        """Tasks a second."""
        dues = [time.time() + HOUR_S] * min(self.count, traits.drains)
        submitted = await peer.submit(dues, self.single)
        return Outcome({"tasks_per_s": len(dues) / submitted.seconds})


@dataclass(frozen=True)
class Drain:
    """Tasks all due at one instant whose handlers do nothing; a peer that is slow gets fewer.

    Of a peer that keeps outcomes it counts when they were recorded, also as its lags; of another one when
    the tasks started, which their handlers note.
    """

    count: int

    async def run(self, peer: Running, traits: Traits) -> Outcome:
        """Tasks a second until the last outcome, and how many were recorded before they were due."""
        await peer.set_workers(WORKERS)
        count = min(self.count, traits.drains)
        dues = [_first_due(count, traits)] * count
        submitted = await peer.submit(dues, noted=not traits.keeps_outcomes)
        first = min(submitted.dues)
        tasks.expect_ahead(first)
        timeout_s = PATIENCE_S + count / 50
        if traits.keeps_outcomes:
            ends = [Start(first, at) for at in await peer.recorded(count, timeout_s)]
        else:
            ends = await peer.starts(submitted, timeout_s)
        outcome = outcome_of(ends)
        rate = count / (max(end.started for end in ends) - first)
        return outcome._replace(figures={"tasks_per_s": rate, "early": outcome.figures["early"]})


@dataclass(frozen=True)
class Lag:
    """Tasks submitted ahead, evenly spaced."""

    rate: int
    seconds: int

    async def run(self, peer: Running, traits: Traits) -> Outcome:
        """From the due time to the handler's start, and how the machine was meanwhile."""
        await peer.set_workers(WORKERS)
        count = self.rate * self.seconds
        first = _first_due(count, traits)
        submitted = await peer.submit([first + n / self.rate for n in range(count)])
        tasks.expect_ahead(first)
        async with watched() as beats:
            starts = await peer.starts(submitted, PATIENCE_S + self.seconds + count / 50)
        outcome = outcome_of(starts)
        return outcome._replace(figures=outcome.figures | speed_figures(beats, starts))


def _first_due(count: int, traits: Traits) -> float:
    return time.time() + 3 + count / traits.submits_per_s
