"""Whatever is done to tasks, in whatever order: each due time has one verdict once it is over."""

import json
import random
from collections.abc import Awaitable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from context_rig import ME, open_context
from store_rig import NOW, new_task, own_all, query

from duly.actors.cancelling import cancel
from duly.actors.catchup import CatchUp
from duly.actors.context import Context
from duly.actors.recording import record
from duly.nodes.api.problems import Problem
from duly.nodes.api.rescheduling import Refused, Rescheduling
from duly.nodes.api.submissions import periodic
from duly.storage import claims, courses, ledger, submitting, tasks, upkeep
from duly.storage.claims import Ended
from duly.storage.ledger import Stale
from duly.storage.slots import DueRow
from duly.storage.tasks import Change, TaskRow
from duly.wheel.durations import from_us, to_us

STEPS = 600
OUTCOMES = ("completed", "completed", "failed", "failed", "snoozed", "lost", "timed_out")


class Clock:
    """The test moves it."""

    def __init__(self) -> None:
        self.us = to_us(NOW)

    def now_us(self) -> int:
        return self.us

    def monotonic(self) -> float:
        return self.us / 1e6


class World:
    """Some tasks, and what may be done to them."""

    def __init__(self, seed: int, context: Context, clock: Clock, epochs: dict[int, int]) -> None:
        self.rng = random.Random(seed)
        self.context, self.clock, self.epochs = context, clock, epochs
        self.db = context.db
        self.ids: list[UUID] = []
        self.tokens: dict[UUID, set[int]] = {}
        self.replaced: set[UUID] = set()
        self.moved: set[UUID] = set()
        """Whose grid cannot be told from the schedule alone."""
        self.rescheduling = Rescheduling(context)
        self.catchup = CatchUp(context)

    @property
    def now(self) -> datetime:
        return from_us(self.clock.us)

    def schedule(self) -> str:
        rng = self.rng
        said: dict[str, Any] = {"every": rng.choice((5, 7, 20))}
        if rng.random() < 0.3:
            said["max_runs"] = rng.randint(1, 4)
        elif rng.random() < 0.4:
            said["end_at"] = (self.now + timedelta(seconds=rng.randrange(20, 200))).isoformat()
        if rng.random() < 0.3:
            said["jitter"] = 2
        return json.dumps(said)

    async def submit(self, _: TaskRow | None = None) -> None:
        rng = self.rng
        due = self.now + timedelta(seconds=rng.randrange(0, 10))
        new = new_task(
            id=UUID(int=rng.getrandbits(128)), due=due, created_at=self.now,
            max_retries=rng.choice((0, 1, 3)), misfire_grace=rng.choice((None, None, 1.0, 8.0)),
            on_lost=rng.choice(("retry", "fail")), backoff='{"kind": "fixed", "delay": 2, "jitter": 0}',
        )  # fmt: skip
        if rng.random() < 0.7:
            new = new._replace(overrun=rng.choice(("skip", "queue")))
            new = periodic(new, self.schedule(), None)
        await submitting.submit(self.db, [new], self.now, self.now)
        self.ids.append(new.id)
        self.tokens[new.id] = set()

    async def fire(self, row: TaskRow) -> None:
        """As the dispatcher: a claim; else it may have expired, or occurrences were missed."""
        if row.next_run_at is None or row.next_run_at > self.now or row.paused:
            return
        due = DueRow(row.id, row.slot, row.next_run_at, row.version, row.priority, row.queue)
        claim = await claims.claim(self.db, ME, [due], self.epochs, self.now)
        if claim.tasks:
            self.tokens[row.id].add(claim.tasks[0].token)
        elif not (await claims.expire(self.db, [due], self.now)).ids:
            self.catchup._late[row.id] = 0
            await self.catchup._step()

    async def report(self, row: TaskRow) -> None:
        """Of the attempt that runs, or of another, once or twice."""
        rng = self.rng
        known = [*self.tokens[row.id], row.version, row.version, row.version + 10_000]
        one = Ended(
            row.id, rng.choice(known), rng.choice(OUTCOMES),  # type: ignore[arg-type]
            rng.choice(("w1", "w2")), None, self.now, may_retry=rng.random() < 0.8,
            delay_s=rng.choice((None, 1.0)),
        )  # fmt: skip
        done = await record(self.db, [one] * rng.choice((1, 2)), self.now)
        if (one.id, one.token) not in done.pairs:
            stale = Stale(one.id, one.token, one.outcome, one.worker or "", None, self.now, None)
            await ledger.reject(self.db, [stale], self.now)

    async def cancel(self, row: TaskRow) -> None:
        if self.rng.random() < 0.5:
            await cancel(self.db, self.context.clock, row.id)

    async def retry(self, row: TaskRow) -> None:
        await tasks.retry(self.db, row.id, self.now)

    async def pause(self, row: TaskRow) -> None:
        await courses.pause(self.db, row.id, self.now, paused=True)

    async def resume(self, row: TaskRow) -> None:
        await self._asked(self.rescheduling.resume(row.id, None))

    async def run_now(self, row: TaskRow) -> None:
        await self._asked(self.rescheduling.run_now(row.id, None))

    async def move(self, row: TaskRow) -> None:
        due = self.now + timedelta(seconds=self.rng.randrange(-5, 20))
        await tasks.patch(self.db, row.id, Change(due=due), None, self.now)

    async def replace(self, row: TaskRow) -> None:
        if row.schedule is None or row.finished_at is not None:
            return
        text = self.schedule()
        wanted = Change(
            schedule=text, interval=timedelta(seconds=json.loads(text)["every"]), may_run=True
        )
        await self._asked(self.rescheduling.patch(row.id, wanted, None, cast(Any, None)))
        self.replaced.add(row.id)

    async def wait(self, _: TaskRow) -> None:
        self.clock.us += round(self.rng.choice((0.5, 3, 12, 60)) * 1e6)

    async def _asked(self, call: Awaitable[object]) -> None:
        with suppress(Refused, Problem):
            await call

    async def step(self) -> None:
        rng = self.rng
        if len(self.ids) < 3 or rng.random() < 0.04:
            await self.submit()
        often = [self.fire, self.report] * 6 + [self.wait] * 3 + [self.resume] * 2
        seldom = [
            self.cancel, self.retry, self.pause, self.run_now, self.move, self.replace,
        ]  # fmt: skip
        do = rng.choice([*often, *seldom])
        task_id = rng.choice(self.ids[-4:])
        await do((await tasks.get(self.db, [task_id]))[task_id])

    async def check(self) -> None:
        rows = await tasks.get(self.db, self.ids)
        runs = await query(
            self.db,
            "select task_id, occurrence, outcome, verdict, token, recorded_at, error, type, queue"
            " from runs order by token, recorded_at",
        )
        groups: dict[tuple[UUID, datetime], list[Any]] = {
            (row.id, row.occurrence): [] for row in rows.values()
        }
        for run in runs:
            groups.setdefault((run["task_id"], run["occurrence"]), []).append(run)
            assert (run["type"], run["queue"]) == ("t", "default")
        for (task_id, occurrence), some in groups.items():
            row = rows[task_id]
            is_open = row.finished_at is None and row.occurrence == occurrence
            said = [(run["outcome"], run["verdict"]) for run in some]
            count = sum(verdict is not None for _, verdict in said)
            assert count == (not is_open), (task_id, occurrence, row.status, said)
            if count:
                outcome, verdict = said[-1]
                assert verdict == ("failed" if outcome in ("lost", "timed_out") else outcome), said
        for row in rows.values():
            if row.schedule is not None and row.id not in self.replaced:
                self._check_grid(row, {at for task_id, at in groups if task_id == row.id})

    def _check_grid(self, row: TaskRow, seen: set[datetime]) -> None:
        """From the first due time to the one that waits, or to a cancel, none is left out."""
        said = json.loads(row.schedule or "")
        every, jitter = (timedelta(seconds=said.get(name, 0)) for name in ("every", "jitter"))
        end = datetime.fromisoformat(said["end_at"]) if "end_at" in said else None
        at, until = row.created_at + every, row.occurrence
        if row.status == "cancelled" and "max_runs" not in said:
            assert row.finished_at is not None
            until = max(until, row.finished_at - jitter)
        while at < until and (end is None or at <= end):
            assert at in seen, (row.id, at, sorted(seen))
            at += every


@pytest.mark.parametrize("seed", range(4))
async def test_each_due_time_has_one_verdict(
    fresh_database: str, redis_url: str, seed: int
) -> None:
    async with open_context(fresh_database, redis_url) as context:
        clock = Clock()
        context.clock = cast(Any, clock)
        await upkeep.make_partitions(context.db, NOW.date())
        world = World(seed, context, clock, await own_all(context.db))
        for number in range(STEPS):
            await world.step()
            if number % 50 == 49:
                await world.check()
        for task_id in world.ids:
            await cancel(context.db, context.clock, task_id)
        await world.check()
        recorded = await query(
            context.db,
            "select from rejected_reports j join runs r on r.task_id = j.task_id and"
            " r.token = j.token and r.outcome = j.outcome and r.worker = j.worker",
        )
        assert recorded == []
        verdicts = await query(context.db, "select distinct verdict from runs")
        assert len(verdicts) >= 4, "a walk that sees too little"
