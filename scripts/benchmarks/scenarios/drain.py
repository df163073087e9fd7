"""How many tasks a second run when many are due at one instant."""

from dataclasses import dataclass

from benchmarks.figures import Outcome
from benchmarks.rig import Rig
from benchmarks.scenarios.tasks import PATIENCE_S, first_due, outcome_of, submit_due

WORKERS = 2


@dataclass(frozen=True)
class Drain:
    """Tasks that do nothing, all due at one instant; two worker processes of 50 each."""

    count: int

    async def run(self, rig: Rig) -> Outcome:
        """Tasks a second, from that instant until the last outcome is in PostgreSQL."""
        await rig.set_workers(WORKERS)
        due = first_due(self.count)
        ids = await submit_due(rig, [due] * self.count)
        starts = outcome_of(await rig.starts(ids, PATIENCE_S + self.count / 200))
        seconds = (await rig.wait_recorded(ids, PATIENCE_S) - due).total_seconds()
        figures = {"tasks_per_s": self.count / seconds, "early": starts.figures["early"]}
        return starts._replace(figures=figures)
