"""Bursts while a transaction that is left open lets no vacuum remove what they leave behind."""

import statistics
from dataclasses import dataclass

from benchmarks.figures import Outcome
from benchmarks.rig import Rig, connected
from benchmarks.scenarios.drain import Drain
from benchmarks.scenarios.lag import Lag

_SEEN = 3  # bursts of whose rates the median is told


@dataclass(frozen=True)
class HeldBack:
    """`bursts` drains of `count` tasks, one after the other, and then so many seconds at a rate.

    Of each task two rows stay in the table, and an entry in each of its indexes for each row.
    """

    count: int
    bursts: int
    rate: int
    seconds: int

    async def run(self, rig: Rig) -> Outcome:
        """The rates of the first and the last bursts, and the lag at the end."""
        async with connected(rig.environ["DULY_DATABASE_URL"]) as connection:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.execute("select from tasks limit 1")  # its snapshot
                drain = Drain(self.count)
                rates = [(await drain.run(rig)).figures["tasks_per_s"] for _ in range(self.bursts)]
                outcome = await Lag(self.rate, self.seconds).run(rig)
            await connection.execute("vacuum analyze tasks")
        first, last = statistics.median(rates[:_SEEN]), statistics.median(rates[-_SEEN:])
        figures = {"first_per_s": first, "last_per_s": last, "last_to_first": last / first}
        return outcome._replace(figures=figures | outcome.figures)
