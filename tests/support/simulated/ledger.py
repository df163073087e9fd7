"""What really happened in a world, and the rules (design, section 3) that it must obey.

It watches what was committed and what was put into streams and begun by workers; it asks the
product nothing.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from simulated.grids import Grids
from simulated.store import Row, Store

Token = tuple[UUID, int]

_TOLERANCE_US = 20_000
_LEAD_US = 40_000  # so long before its due time a task is claimed at most
_PUBLISHED_EARLY_US = 2_000


class Ledger:
    """`now_us`: true cluster time. `clock_error_us`: how wrong the clock of a node may be."""

    def __init__(self, now_us: Callable[[], int], clock_error_us: Callable[[str], int]) -> None:
        self._now_us = now_us
        self._clock_error_us = clock_error_us
        self.broken: list[str] = []
        """Rules that were broken, in words."""
        self.accepted: dict[UUID, int] = {}
        """Acknowledged submissions, and when."""
        self.highest: dict[UUID, int] = {}
        self.claims: dict[Token, str] = {}
        self.due_us: dict[Token, int] = {}
        self.delivered: set[tuple[UUID, int, str]] = set()
        self.started: Counter[Token] = Counter()
        self.reported: dict[Token, set[str]] = defaultdict(set)
        self.ended: set[Token] = set()
        self.cancelled: dict[UUID, int] = {}
        """Acknowledged cancels of pending tasks, and the version that each left."""
        self.last_status: dict[UUID, str] = {}
        """What tasks were when they left the table of tasks."""
        self.over: dict[UUID, asyncio.Event] = defaultdict(asyncio.Event)
        """Set when a task has left that table."""
        self.holding: dict[str, set[UUID]] = defaultdict(set)
        """Concurrency key -> the tasks that run with it."""
        self.grids = Grids()
        self.epochs: dict[int, tuple[int, str | None]] = {}
        self.may_start_again = False
        """Redis was in trouble: a token may begin again after its end (at least once)."""
        self.lag_us = 0
        """The most by which a claim was late, of tasks due (and stored) after `settled_us`."""
        self.settled_us = 0

    def breaks(self, rule: str) -> None:
        """Note a broken rule."""
        self.broken.append(rule)

    # Commits (the store's watcher)

    def task_changed(self, old: Row | None, new: Row | None) -> None:
        """Tokens only grow; a claim makes a new one, of a task that is due."""
        row = new or old
        assert row is not None
        task_id, highest = row["id"], self.highest.get(row["id"], -1)
        self._note_holding(new or {**row, "status": "gone"})
        if new is None:
            assert old is not None
            self.last_status[task_id] = old["status"]
            self.over[task_id].set()
            return
        self.grids.changed(old, new)
        if new["version"] < highest:
            self.breaks(f"the version of {task_id} went back from {highest} to {new['version']}")
        if new["status"] == "running" and (old is None or old["status"] != "running"):
            if new["version"] <= highest:
                self.breaks(f"token {new['version']} of {task_id} was handed out twice")
            self.claims[task_id, new["version"]] = new["owner"]
            assert old is not None
            self.due_us[task_id, new["version"]] = _us(old["next_run_at"])
            self._check_due(old, new["owner"])
        elif new["status"] == "running" and old is not None and old["version"] != new["version"]:
            self.breaks(f"{task_id} was claimed while it ran under {old['version']}")
        self.highest[task_id] = max(highest, new["version"])

    def _note_holding(self, row: Row) -> None:
        """No more tasks run with a concurrency key than its limit."""
        key = row["concurrency_key"]
        if key is None:
            return
        if row["status"] != "running":
            self.holding[key].discard(row["id"])
            return
        self.holding[key].add(row["id"])
        if len(self.holding[key]) > row["concurrency_limit"]:
            self.breaks(f"{len(self.holding[key])} tasks run with the key {key}")

    def _check_due(self, row: Row, owner: str) -> None:
        late_us = self._now_us() - _us(row["next_run_at"])
        known_us = _us(max(row["next_run_at"], row["updated_at"]))
        if known_us > self.settled_us and row["concurrency_key"] is None:
            self.lag_us = max(self.lag_us, self._now_us() - known_us)
        if late_us < -_LEAD_US - _TOLERANCE_US - self._clock_error_us(owner):
            self.breaks(f"{row['id']} was claimed {-late_us / 1e6:.3f} s before it was due")

    def slot_taken(self, slot: int, epoch: int, owner: str | None) -> None:
        """Each take-over raises the epoch of a slot."""
        known, holder = self.epochs.get(slot, (0, None))
        if epoch <= known:
            self.breaks(f"slot {slot}: {owner} took it under epoch {epoch} after {known} {holder}")
        self.epochs[slot] = epoch, owner

    def claimed_under(self, slot: int, epoch: int, owner: str) -> None:
        """A claim commits only under the epoch of the last take-over, by whoever took over."""
        if (epoch, owner) != self.epochs.get(slot):
            self.breaks(
                f"slot {slot}: {owner} claimed under epoch {epoch}, taken: {self.epochs.get(slot)}"
            )

    def finished(self, row: Row) -> None:
        """A task is over; its tokens are used up."""
        self.highest[row["id"]] = max(self.highest.get(row["id"], -1), row["version"])

    def recorded(self, run: Row) -> None:
        """One outcome a token, and one that is true."""
        broken = self.grids.recorded(run)
        if broken is not None:
            self.breaks(broken)
        if run["outcome"] == "skipped":
            return  # of many occurrences under one token
        token = (run["task_id"], run["token"])
        if token in self.ended:
            self.breaks(f"{token} has two recorded outcomes")
        self.ended.add(token)
        if run["outcome"] == "cancelled":
            return
        if token not in self.claims:
            self.breaks(f"{token} has an outcome and was never claimed")
        said = self.reported.get(token, set())
        if run["outcome"] in ("completed", "failed") and run["outcome"] not in said:
            self.breaks(f"{token} is recorded {run['outcome']}, which no worker reported")
        is_loss = run["outcome"] in ("lost", "timed_out")
        if is_loss and (*token, run["worker"]) not in self.delivered:
            self.breaks(f"{token} is recorded {run['outcome']} of a worker that never had it")

    # Streams and workers

    def published(self, task_id: UUID, token: int) -> None:
        """Nothing is dispatched before its claim has committed, nor before it is due."""
        if (task_id, token) not in self.claims:
            self.breaks(f"{task_id} was published under {token} before that was claimed")
            return
        early_us = self.due_us[task_id, token] - self._now_us()
        if early_us > _PUBLISHED_EARLY_US + self._clock_error_us(self.claims[task_id, token]):
            self.breaks(f"{task_id} was published {early_us / 1e6:.3f} s before its time")

    def delivery(self, task_id: UUID, token: int, worker: str) -> None:
        """A worker has got an entry."""
        self.delivered.add((task_id, token, worker))

    def start(self, task_id: UUID, token: int, confirmed: bool) -> None:
        """A worker has begun (its `begin` was answered, and its confirmed start granted)."""
        self.started[task_id, token] += 1
        if token > self.highest.get(task_id, -1):
            self.breaks(f"{task_id} started under {token}, which was never handed out")
        if confirmed and self.started[task_id, token] > 1:
            self.breaks(f"{task_id} started twice under {token} though its start is confirmed")
        if task_id in self.cancelled and token >= self.cancelled[task_id] - 1:
            self.breaks(f"{task_id} started after the cancel of it while pending was acknowledged")
        if (task_id, token) in self.reported and not self.may_start_again:
            self.breaks(f"{task_id} started again under {token} after that was reported")

    def report(self, task_id: UUID, token: int, outcome: str) -> None:
        """A worker's report was taken in."""
        self.reported[task_id, token].add(outcome)

    # At the end

    def check_end(self, store: Store) -> None:
        """Every accepted task is over, and kept once; each occurrence completed at most once."""
        for task_id in self.accepted:
            there = (task_id in store.tasks) + (task_id in store.finished)
            if there != 1:
                self.breaks(f"the accepted task {task_id} is kept {there} times")
        for task_id, row in store.tasks.items():
            self.breaks(f"{task_id} is still {row['status']} at the end: {_brief(row)}")
        done = Counter(
            (run["task_id"], run["occurrence"])
            for run in store.runs
            if run["outcome"] == "completed"
        )
        for (task_id, _), count in done.items():
            if count > 1:
                self.breaks(f"{task_id} is recorded completed {count} times")
        self._check_verdicts(store)
        self._check_followers(store)
        for broken in self.grids.check_end(store):
            self.breaks(broken)
        for task_id in self.cancelled:
            done_row = store.finished.get(task_id)
            if done_row is not None and done_row["status"] != "cancelled":
                self.breaks(f"{task_id} was cancelled and is {done_row['status']}")

    def _check_followers(self, store: Store) -> None:
        """Each outcome has exactly the task that is to follow it, and none began that waited for others in vain."""
        wanted: Counter[Token] = Counter()
        for run in store.runs:
            row = store.finished.get(run["task_id"])
            if row is None or run["verdict"] is None:
                continue
            verdict, expired = (
                run["verdict"],
                run["verdict"] == "skipped" and row["schedule"] is None,
            )
            name = {"completed": "on_success", "failed": "on_failure"}.get(verdict)
            name = "on_failure" if expired else name
            if name is not None and row[name] is not None:
                wanted[run["task_id"], run["token"]] += 1
        found: Counter[Token] = Counter()
        for row in store.finished.values():
            if row["parent"] is not None:
                said = json.loads(row["parent"])
                found[UUID(said["id"]), said["token"]] += 1
        for token in wanted.keys() | found.keys():
            if wanted[token] != found[token]:
                self.breaks(f"{token} is followed by {found[token]} tasks, not by {wanted[token]}")
        for row in store.finished.values():
            ends = {store.finished[one]["status"] for one in row["after"] or ()}
            began = any(task_id == row["id"] for task_id, _ in self.claims)
            if began and not ends <= {"completed"}:
                self.breaks(f"{row['id']} began though what it waited for ended as {ends}")
            if (
                row["status"] == "failed"
                and not began
                and row["after"]
                and ends == {"completed"}
                and row["misfire_grace"] is None
            ):
                self.breaks(f"{row['id']} failed though all that it waited for completed")

    def _check_verdicts(self, store: Store) -> None:
        """Each occurrence of a task that is over has one verdict, and it is that of its last run."""
        runs: dict[tuple[UUID, datetime], list[Row]] = defaultdict(list)
        for row in store.finished.values():
            runs[row["id"], row["occurrence"]] = []
        for run in sorted(store.runs, key=lambda run: (run["token"], run["recorded_at"])):
            if run["task_id"] in store.finished:
                runs[run["task_id"], run["occurrence"]].append(run)
        for (task_id, occurrence), some in runs.items():
            verdicts = [run["verdict"] for run in some if run["verdict"] is not None]
            if len(verdicts) != 1:
                self.breaks(f"{task_id} has the verdicts {verdicts} over {occurrence}")
            elif not _fits(some[-1]):
                said = [(run["outcome"], run["verdict"]) for run in some]
                self.breaks(f"{task_id}: what became of {occurrence} is not its last run: {said}")


def _fits(run: Row) -> bool:
    outcome = "failed" if run["outcome"] in ("lost", "timed_out") else run["outcome"]
    return bool(run["verdict"] == outcome)


def _us(instant: datetime) -> int:
    return round(instant.timestamp() * 1e6)


def _brief(row: dict[str, Any]) -> str:
    names = ("queue", "slot", "version", "owner", "retry_count", "next_run_at", "claimed_at")
    return ", ".join(f"{name} {row[name]}" for name in names)
