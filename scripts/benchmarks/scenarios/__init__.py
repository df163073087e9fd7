"""The scenarios of `scripts/bench`, by name. Each is a small object with a `run(rig)`."""

from typing import Protocol

from benchmarks.figures import Outcome
from benchmarks.rig import Rig
from benchmarks.scenarios.cluster import Cluster
from benchmarks.scenarios.drain import Drain
from benchmarks.scenarios.failover import Failover
from benchmarks.scenarios.held_back import HeldBack
from benchmarks.scenarios.idle import Idle
from benchmarks.scenarios.lag import Lag
from benchmarks.scenarios.mixed import Mixed
from benchmarks.scenarios.submit import SubmitBatch, SubmitSingle


class Scenario(Protocol):
    """One thing to measure."""

    async def run(self, rig: Rig) -> Outcome:
        """Measure it once, and leave nothing waiting in the store."""


def scenarios(quick: bool = False) -> dict[str, Scenario]:
    """Every scenario by name, in the order in which they are taken; `quick` ones are small."""
    drained = 5_000 if quick else 20_000
    lag_s = 3 if quick else 10
    return {
        "submit_single": SubmitSingle(2_000 if quick else 10_000),
        "submit_batch": SubmitBatch(10_000 if quick else 40_000),
        "drain": Drain(drained),
        **{f"lag_{rate}": Lag(rate, lag_s) for rate in (100, 500, 1_000, 2_000)},
        "mixed": Mixed(300, 5 if quick else 20),
        "idle": Idle(20_000, 8) if quick else Idle(100_000, 30),
        "failover": Failover(300, 12 if quick else 20),
        "cluster": Cluster(drained),
        "held_back": HeldBack(2 * drained, 3 if quick else 15, 500, lag_s),
    }
