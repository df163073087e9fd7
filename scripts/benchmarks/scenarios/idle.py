"""What a node and its servers do while nothing is due and many tasks wait."""

import asyncio
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Figures, Outcome
from benchmarks.rig import Rig
from benchmarks.scenarios.tasks import HOUR_S, forget, task

# A backend that has become idle tells what it did after 10 s at the latest.
_SETTLE_S = 12


@dataclass(frozen=True)
class Idle:
    """So many tasks an hour out, no worker, looked at for so long."""

    tasks: int
    seconds: int
    settle_s: float = _SETTLE_S

    async def run(self, rig: Rig) -> Outcome:
        """Statements and commands a second, share of a core, and memory of the node."""
        await rig.set_workers(0)
        await rig.submit([task(delay=HOUR_S)] * self.tasks)
        await asyncio.sleep(self.settle_s)
        before = await counters(rig)
        await asyncio.sleep(self.seconds)
        after = await counters(rig)
        await forget(rig)
        spent = {name: (after[name] - before[name]) / self.seconds for name in before}
        return Outcome(
            {
                "statements_per_s": spent["transactions"],
                "redis_commands_per_s": spent["commands"],
                "redis_requests_per_s": spent["requests"],
                "node_cpu_percent": 100 * spent["node_cpu_s"],
                "node_memory_mb": rig.node.memory_info().rss / 1e6,
            }
        )


async def counters(rig: Rig) -> Figures:
    """What the servers and the node have done until now."""
    # A backend tells its counts once a second at most; ours are few and part of the answer.
    transactions = await rig.database.fetchval(
        "select xact_commit + xact_rollback from pg_stat_database"
        " where datname = current_database()"
    )
    info: dict[str, Any] = await rig.redis.info("stats")
    times = rig.node.cpu_times()
    return {
        "transactions": transactions,
        "commands": info["total_commands_processed"],
        "requests": info["total_reads_processed"],  # commands inside scripts are none
        "node_cpu_s": times.user + times.system,
    }
