"""Rule 8: periodic tasks keep their grid; each occurrence is run or recorded skipped, once.

The grid is computed here, from what was submitted. A schedule that is replaced rules up to the
change, and the next one from there, or from the occurrence that had begun by then if that is later.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from simulated.store import Row, Store


class _Rule(NamedTuple):
    """A schedule that rules after this instant; None: from the beginning."""

    after: datetime | None
    every: timedelta
    end_at: datetime | None
    max_runs: int | None
    jitter: timedelta

    def times(self, created_at: datetime) -> Iterator[datetime]:
        at = created_at + self.every
        while self.end_at is None or at <= self.end_at:
            if self.after is None or at > self.after:
                yield at
            at += self.every


class Grids:
    """Of every periodic task; is told of commits."""

    def __init__(self) -> None:
        self._rules: dict[UUID, list[_Rule]] = defaultdict(list)
        self._created: dict[UUID, datetime] = {}
        self._latest: dict[UUID, datetime] = {}
        self._over: Counter[tuple[UUID, datetime]] = Counter()
        self.extra_runs: Counter[UUID] = Counter()
        """Calls of run-now, whatever was answered."""

    def changed(self, old: Row | None, new: Row) -> None:
        """A row of `tasks` appeared or changed."""
        if new["schedule"] is None or (old is not None and old["schedule"] == new["schedule"]):
            return
        said = json.loads(new["schedule"])
        end_at = said.get("end_at")
        after = None
        if old is not None:
            after = max(new["updated_at"], self._latest.get(new["id"], new["updated_at"]))
            # An occurrence that has begun goes on, as does an extra one.
            stays = new["occurrence"] == old["occurrence"] <= new["updated_at"]
            if old["status"] == "running" or old["begun"] or stays:
                after = max(after, old["occurrence"])
        self._created[new["id"]] = new["created_at"]
        self._rules[new["id"]].append(_Rule(
            after, timedelta(seconds=said["every"]),
            None if end_at is None else datetime.fromisoformat(end_at), said.get("max_runs"),
            timedelta(seconds=said.get("jitter") or 0),
        ))  # fmt: skip

    def recorded(self, run: Row) -> str | None:
        """A run; answers the rule that it breaks."""
        task_id, occurrence = run["task_id"], run["occurrence"]
        if task_id not in self._rules:
            return None
        self._latest[task_id] = max(occurrence, self._latest.get(task_id, occurrence))
        if self._over[task_id, occurrence]:
            return f"{task_id}: {run['outcome']} is recorded of {occurrence}, which was over"
        if run["outcome"] in ("completed", "skipped"):
            self._over[task_id, occurrence] += 1
        return None

    def check_end(self, store: Store) -> Iterator[str]:
        """Of tasks that are over: no occurrence was left out, none made up."""
        seen: dict[UUID, dict[datetime, bool]] = defaultdict(dict)
        for run in store.runs:
            ran = run["outcome"] not in ("skipped", "cancelled")
            known = seen[run["task_id"]].get(run["occurrence"], False)
            seen[run["task_id"]][run["occurrence"]] = known or ran
        for task_id, rules in self._rules.items():
            row = store.finished.get(task_id)
            if row is not None:
                yield from self._check(row, rules, seen[task_id])

    def _check(self, row: Row, rules: list[_Rule], seen: dict[datetime, bool]) -> Iterator[str]:
        task_id, created = row["id"], self._created[row["id"]]
        left = dict(seen)
        ran = 0
        for number, rule in enumerate(rules):
            is_last = number == len(rules) - 1
            until = max(seen, default=created) if is_last else rules[number + 1].after
            assert until is not None
            gap: datetime | None = None
            for at in rule.times(created):
                if at > until and not is_last:
                    break
                if at in left:
                    ran += left.pop(at)
                    if gap is not None:
                        yield f"{task_id} left out its occurrence of {gap}"
                        break
                elif gap is None:
                    gap = at
                if at > until:
                    break
            if gap is not None and not is_last:
                yield f"{task_id} left out its occurrence of {gap}, and got another schedule"
            enough = rule.max_runs is not None and ran >= rule.max_runs
            if is_last and gap is not None and row["status"] == "completed" and not enough:
                yield f"{task_id} ended before its occurrence of {gap}"
            cancelled = row["status"] == "cancelled" and rule.max_runs is None
            if (
                is_last
                and gap is not None
                and cancelled
                and gap + rule.jitter <= row["finished_at"]
            ):
                yield f"{task_id} was cancelled after its occurrence of {gap}"
        if len(left) > self.extra_runs[task_id]:
            yield f"{task_id} had occurrences that are none: {sorted(map(str, left))}"
