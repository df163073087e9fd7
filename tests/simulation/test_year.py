"""Many schedules for some days, checked against the oracle; `scripts/simulate_year` takes a year.

A day of trouble in this world is a day in which nodes die, pause and lose their slots, PostgreSQL is
away or answers badly, workers die and report late, and clients pause tasks and ask for runs.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from simulated import statements
from simulated.store import Row, Store
from year.world import Year, simulate

from duly.wheel import occurrences, schedule
from duly.wheel.occurrences import Course, Skip, Step


def test_each_occurrence_is_run_or_skipped_once() -> None:
    package = Path(sys.modules["year.world"].__file__ or "").parent
    done = subprocess.run(
        [sys.executable, str(package / "__main__.py"), "--schedules", "100", "--days", "8"],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^(.+?) +(\d+)$", done.stdout, re.MULTILINE)
    counts = {name: int(count) for name, count in lines}
    assert counts["occurrences"] > 1000
    for name in ("completed", "failed", "skipped", "kill", "stall", "move", "take-overs"):
        assert counts[name] > 0


def settles_without_skips(store: Store, *args: Any) -> list[Row]:
    *columns, _, _, _, now = args
    return statements.settle(store, *columns, [], [], [], now)


def skips_all_but_the_first(found: Any, reason: str) -> tuple[Skip, ...]:
    return tuple(Skip(one, reason) for one in list(found)[:1])


def goes_on_from_now(course: Course, now: datetime, limit: int = 0) -> Step:
    following = course.plan.after(now)
    return Step(following, following, done_until=now)


BUGS: dict[str, tuple[Any, str, Any]] = {
    "the next is the one after now": (occurrences, "ended", goes_on_from_now),
    "of several only the first is recorded as skipped": (
        occurrences, "_skips", skips_all_but_the_first,
    ),
    "a run is early by a second": (
        schedule.Plan, "due", lambda _, task_id, occurrence: occurrence - timedelta(seconds=1),
    ),
}  # fmt: skip


def found_by(prepare: Callable[[Year], None] | None = None) -> bool:
    return any(simulate(seed, 40, 4, prepare=prepare).broken for seed in range(3))


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    with patch.object(*BUGS[name]):
        assert found_by()


def test_skips_that_are_lost_with_an_end_are_found() -> None:
    assert found_by(lambda year: year.store.overrides.update(settle=settles_without_skips))
