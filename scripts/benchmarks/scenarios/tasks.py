"""The tasks that scenarios submit."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.figures import Outcome, lag_figures
from benchmarks.rig import QUEUE, TASK_TYPE, Rig, Start

HOUR_S = 3600

PATIENCE_S = 120.0
"""How long to wait for tasks beyond the time that they need anyway, before giving up."""

_SUBMITTED_PER_S = 5_000
"""Submissions that a slow machine manages: how far ahead a scenario has to begin."""


def task(task_type: str = TASK_TYPE, **more: Any) -> dict[str, Any]:
    """A submission with a payload of 120 bytes."""
    payload = {"n": 1, "text": "x" * 100}
    return {"type": task_type, "queue": QUEUE, "payload": payload, **more}


def first_due(count: int) -> datetime:
    """A time by which `count` tasks will have been submitted."""
    return datetime.now(UTC) + timedelta(seconds=3 + count / _SUBMITTED_PER_S)


def evenly(first: datetime, rate: float, seconds: float) -> list[datetime]:
    """`rate` times a second, from the first on."""
    return [first + timedelta(seconds=n / rate) for n in range(int(rate * seconds))]


async def submit_due(rig: Rig, dues: Sequence[datetime], **more: Any) -> list[str]:
    """Submit a task for each of these times; answers their ids.

    Raises RuntimeError if the first was due before all of them were submitted.
    """
    ids = await rig.submit([task(run_at=due.isoformat(), **more) for due in dues])
    expect_ahead(min(dues).timestamp())
    return ids


def expect_ahead(first: float) -> None:
    """Raise RuntimeError if this time, in seconds since 1970, has passed."""
    if time.time() > first:
        raise RuntimeError("the first was due before all of them were submitted")


def outcome_of(starts: Sequence[Start]) -> Outcome:
    """The lag of these starts, and when they were."""
    lags_ms = sorted((start.started - start.due) * 1000 for start in starts)
    first = min(start.due for start in starts)
    return Outcome(lag_figures(lags_ms), lags_ms, sorted(start.started - first for start in starts))


async def forget(rig: Rig) -> None:
    """Take what waits out of the store, so that the next scenario finds it as the first did."""
    await rig.database.execute("delete from tasks where queue = $1 and status = 'pending'", QUEUE)
    await rig.database.execute("vacuum analyze tasks")


async def sleep_until(when: datetime) -> None:
    """Return at that time, or at once if it has passed."""
    await asyncio.sleep(max(0.0, (when - datetime.now(UTC)).total_seconds()))
