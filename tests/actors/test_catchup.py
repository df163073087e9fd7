"""Catch-up after an outage: in bites, in turns, and none lost or doubled whatever breaks in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import anyio
import pytest
import simulated.course_statements
import simulated.task_statements  # noqa: F401 - registers statements
from actor_rig import served
from firing_rig import Firing, at
from simulated.store import Record, Store
from store_rig import new_task
from virtual_time import VIRTUAL_TIME

from duly.actors.catchup import CatchUp
from duly.actors.messages import Missed, Schedule
from duly.actors.runtime import Child, Supervisor
from duly.nodes.api.submissions import periodic
from duly.storage.errors import StoreUnavailableError
from duly.storage.submitting import NewTask

MINUTE = timedelta(minutes=1)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


class Database:
    """The simulated store; notes how many occurrences each statement skips."""

    def __init__(self) -> None:
        self.store = Store(8, lambda: at(0))
        self.bites: list[int] = []
        self.doubts: list[bool] = []
        """Of the next moves: fails, and whether it was done all the same."""

    async def fetch(self, name: str, *args: Any) -> list[Record]:
        await anyio.sleep(0.01)
        if name == "advance":
            assert len(args[9]) <= 1000
            if self.doubts:
                if self.doubts.pop(0):
                    self.store.run(name, args)
                raise StoreUnavailableError("no answer", in_doubt=True)
            self.bites.append(len(args[9]))
        return self.store.run(name, args)

    def put(self, number: int, missed: int, **changes: Any) -> UUID:
        """A task that runs every minute and was away; answers its id."""
        made = at(0) - (missed + 0.5) * MINUTE
        plain = new_task(id=UUID(int=number), created_at=made, due=made)._replace(**changes)
        new: NewTask = periodic(plain, '{"every":60.0}', None)
        columns = [[value] for value in new]
        self.store.run("submit", [*columns, made, made])
        self.store.slots[self.store.tasks[new.id]["slot"]]["owner"] = "node"
        return new.id

    def skipped(self, task_id: UUID) -> list[Any]:
        return [run["occurrence"] for run in self.store.runs if run["task_id"] == task_id]


@asynccontextmanager
async def catching_up(db: Database) -> AsyncIterator[Firing]:
    rig = Firing()
    rig.context.db = cast(Any, db)
    box = rig.context.boxes.catchup
    supervisor = Supervisor("one", [Child("catchup", lambda: CatchUp(rig.context), box)])
    async with served(supervisor):
        yield rig


async def woken(rig: Firing, task_id: UUID) -> float:
    """Wait until the ticker hears of a task; answers the loop's time."""
    while True:
        message = await rig.context.boxes.ticker.receive()
        rig.context.boxes.ticker.handled()
        assert isinstance(message, Schedule)
        if any(row.id == task_id for row in message.rows):
            return asyncio.get_running_loop().time()


async def test_c14_a_long_way_is_gone_in_bites_and_holds_up_nobody() -> None:
    db = Database()
    long, short = db.put(1, 129_600), db.put(2, 3)
    async with catching_up(db) as rig:
        rig.context.boxes.catchup.offer(Missed([long]))
        await anyio.sleep(0.2)
        began = asyncio.get_running_loop().time()
        rig.context.boxes.catchup.offer(Missed([short]))
        assert await woken(rig, short) - began < 0.1
        assert await woken(rig, long) < 5
    row = db.store.tasks[long]
    assert row["occurrence"] == at(0) - MINUTE / 2
    assert row["following"] == at(0) + MINUTE / 2
    seen = db.skipped(long)
    assert len(seen) == len(set(seen)) == 129_599
    assert len(db.bites) < 140


async def test_many_tasks_share_a_bite() -> None:
    db = Database()
    ids = [db.put(number, 300) for number in range(1, 30)]
    async with catching_up(db) as rig:
        rig.context.boxes.catchup.offer(Missed(ids))
        await anyio.sleep(2)
    assert sum(db.bites) == 29 * 299
    assert len(db.bites) < 30  # several bites of most tasks, never one for each
    for task_id in ids:
        assert db.store.tasks[task_id]["occurrence"] == at(0) - MINUTE / 2


@pytest.mark.parametrize("done", [True, False])
async def test_a_lost_answer_neither_loses_nor_doubles_an_occurrence(done: bool) -> None:
    db = Database()
    task_id = db.put(1, 2500)
    db.doubts = [done, False, done]
    async with catching_up(db) as rig:
        rig.context.boxes.catchup.offer(Missed([task_id]))
        await anyio.sleep(5)
    seen = db.skipped(task_id)
    assert len(seen) == len(set(seen)) == 2499
    assert db.store.tasks[task_id]["occurrence"] == at(0) - MINUTE / 2


async def test_whoever_stops_in_the_middle_leaves_it_due_again_and_unclaimable() -> None:
    db = Database()
    task_id = db.put(1, 25_000)
    async with catching_up(db) as rig:
        rig.context.boxes.catchup.offer(Missed([task_id]))
        await anyio.sleep(0.3)
    row = db.store.tasks[task_id]
    assert at(0) < row["next_run_at"] < at(5)
    assert row["following"] <= at(0)
    async with catching_up(db) as rig:
        rig.context.boxes.catchup.offer(Missed([task_id]))
        await woken(rig, task_id)
    seen = db.skipped(task_id)
    assert len(seen) == len(set(seen)) == 24_999


async def test_what_need_not_move_is_left_alone() -> None:
    db = Database()
    paused, in_time = db.put(1, 5), db.put(2, 0)
    db.store.run("pause", [paused, at(0), True, None])
    before = dict(db.store.tasks)
    async with catching_up(db) as rig:
        rig.context.boxes.catchup.offer(Missed([paused, in_time, UUID(int=9)]))
        await anyio.sleep(1)
    assert db.store.tasks == before


async def test_a_schedule_that_is_not_understood_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    db = Database()
    lost, other = db.put(1, 5), db.put(2, 5)
    # As after an update of the zone data that has dropped a zone.
    db.store.tasks[lost]["schedule"] = '{"cron":"0 3 * * *","timezone":"Nowhere/Gone"}'
    async with catching_up(db) as rig:
        for _ in range(3):
            rig.context.boxes.catchup.offer(Missed([lost, other]))
            await anyio.sleep(0.5)
    told = [line for line in caplog.messages if "cannot go on" in line]
    assert len(told) == 1
    assert str(lost) in told[0]
    assert db.skipped(lost) == []
    assert len(db.skipped(other)) == 4
