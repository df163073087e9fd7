"""How late handlers start."""

from dataclasses import dataclass

from benchmarks.figures import Outcome
from benchmarks.pulse import speed_figures, watched
from benchmarks.rig import Rig
from benchmarks.scenarios.drain import WORKERS
from benchmarks.scenarios.tasks import PATIENCE_S, evenly, first_due, outcome_of, submit_due


@dataclass(frozen=True)
class Lag:
    """Tasks submitted ahead, evenly spaced."""

    rate: int
    seconds: int

    async def run(self, rig: Rig) -> Outcome:
        """From the due time to the handler's start, and how the machine was meanwhile."""
        await rig.set_workers(WORKERS)
        dues = evenly(first_due(self.rate * self.seconds), self.rate, self.seconds)
        ids = await submit_due(rig, dues)
        async with watched() as beats:
            starts = await rig.starts(ids, PATIENCE_S + 2 * self.seconds)
        outcome = outcome_of(starts)
        return outcome._replace(figures=outcome.figures | speed_figures(beats, starts))
