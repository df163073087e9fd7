"""How late tasks are when a node dies."""

from dataclasses import dataclass
from datetime import timedelta

from benchmarks.figures import Outcome
from benchmarks.rig import Rig
from benchmarks.scenarios.drain import WORKERS
from benchmarks.scenarios.tasks import (
    PATIENCE_S,
    evenly,
    first_due,
    outcome_of,
    sleep_until,
    submit_due,
)

NODES = 3

_LATE_MS = 1_000


@dataclass(frozen=True)
class Failover:
    """kill -9 of one of three nodes in the middle of evenly spaced tasks."""

    rate: int
    seconds: int

    async def run(self, rig: Rig) -> Outcome:
        """How late the latest task was, and how many were later than a second."""
        await rig.set_nodes(NODES)
        await rig.set_workers(WORKERS)
        first = first_due(self.rate * self.seconds)
        ids = await submit_due(rig, evenly(first, self.rate, self.seconds))
        await sleep_until(first + timedelta(seconds=self.seconds / 3))
        await rig.kill_node()
        starts = outcome_of(await rig.starts(ids, PATIENCE_S + 2 * self.seconds))
        await rig.set_nodes(1)
        late = sum(lag > _LATE_MS for lag in starts.lags_ms)
        return starts._replace(figures={**starts.figures, "late_1s": late})
