"""What two more nodes cost or bring on the same machine."""

from dataclasses import dataclass

from benchmarks.figures import Outcome
from benchmarks.rig import Rig
from benchmarks.scenarios.drain import Drain
from benchmarks.scenarios.failover import NODES


@dataclass(frozen=True)
class Cluster:
    """The drain with one node, then with three."""

    count: int

    async def run(self, rig: Rig) -> Outcome:
        """Both rates, and that of three divided by that of one."""
        drain = Drain(self.count)
        one = await drain.run(rig)
        await rig.set_nodes(NODES)
        three = await drain.run(rig)
        await rig.set_nodes(1)
        rates = {
            "one_per_s": one.figures["tasks_per_s"],
            "three_per_s": three.figures["tasks_per_s"],
        }
        return three._replace(
            figures={**rates, "three_to_one": rates["three_per_s"] / rates["one_per_s"]}
        )
