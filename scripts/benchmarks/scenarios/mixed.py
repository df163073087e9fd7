"""One-off tasks, retries and periodic tasks at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.figures import Figures, Outcome, lag_figures
from benchmarks.rig import FLAKY_TYPE, Rig
from benchmarks.scenarios.drain import WORKERS
from benchmarks.scenarios.tasks import PATIENCE_S, evenly, first_due, outcome_of, submit_due, task

_RETRY_S = 1.0
_SHARE = 0.1

# A retry is due _RETRY_S after its failure was recorded.
_RETRIES = """
    select extract(epoch from again.started_at - failed.recorded_at)::float8 * 1000 - $2 as lag_ms
    from runs failed join runs again on again.task_id = failed.task_id and again.attempt = 2
    where failed.task_id = any($1::uuid[]) and failed.attempt = 1 and failed.outcome = 'failed'
"""
_OCCURRENCES = """
    select extract(epoch from started_at - occurrence)::float8 * 1000 as lag_ms
    from runs where task_id = any($1::uuid[]) and outcome = 'completed'
"""


@dataclass(frozen=True)
class Mixed:
    """`rate` first starts a second: a tenth of them fail, and a tenth are of periodic tasks.

    What fails is tried again a second later. A periodic task comes every second. Each of the
    three kinds has its own lag, and all are under the load of the others.
    """

    rate: int
    seconds: int

    async def run(self, rig: Rig) -> Outcome:
        """The lag of each kind. Raises RuntimeError if a retry is missing."""
        await rig.set_workers(WORKERS)
        few = int(self.rate * _SHARE)
        first = first_due(self.rate * self.seconds)
        periodic = await self._submit_periodic(rig, first, few)
        backoff = {"kind": "fixed", "delay": _RETRY_S, "jitter": 0}
        flaky = await submit_due(
            rig, evenly(first, few, self.seconds), type=FLAKY_TYPE, backoff=backoff
        )
        plain = await submit_due(rig, evenly(first, self.rate - 2 * few, self.seconds))
        timeout_s = PATIENCE_S + 2 * self.seconds
        starts = outcome_of(await rig.starts(plain, timeout_s))
        await rig.wait_recorded(flaky, timeout_s)
        await rig.wait_recorded(periodic, timeout_s, each=self.seconds)
        retries = await rig.database.fetch(_RETRIES, flaky, _RETRY_S * 1000)
        if len(retries) != len(flaky):
            raise RuntimeError(f"{len(retries)} retries of {len(flaky)} failed tasks")
        occurrences = await rig.database.fetch(_OCCURRENCES, periodic)
        figures = {
            **starts.figures,
            **_named("retry", [row["lag_ms"] for row in retries]),
            **_named("periodic", [row["lag_ms"] for row in occurrences]),
        }
        return starts._replace(figures=figures)

    async def _submit_periodic(self, rig: Rig, first: datetime, count: int) -> list[str]:
        dues = [first + timedelta(seconds=n / count) for n in range(count)]
        every = {"every": 1, "max_runs": self.seconds}
        return await rig.submit(
            [task(schedule={**every, "start_at": due.isoformat()}) for due in dues]
        )


def _named(kind: str, lags_ms: Sequence[float]) -> Figures:
    return {f"{kind}_{name}": value for name, value in lag_figures(sorted(lags_ms)).items()}
