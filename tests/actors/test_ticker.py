"""The wheel's owner: nothing early, nothing twice, and a stop that does not hang."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from firing_rig import SLOTS, START_US, Firing, at, due_row, now_us
from virtual_time import VIRTUAL_TIME

from duly.actors.context import Options
from duly.actors.messages import Due, Schedule
from duly.actors.runtime import Actor, Reply
from duly.actors.ticker import Ticker
from duly.storage.slots import DueRow
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import to_us

AT_ITS_TIME = Options(claim_ahead_s=0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


class Collector(Actor[Any]):
    """Stands for the dispatcher: notes what came when, on the cluster's clock."""

    name = "dispatcher"
    came: list[tuple[int, DueRow]]

    def __init__(self, context: Any) -> None:
        super().__init__(context.boxes.dispatcher)

    async def handle(self, message: Any) -> None:
        if isinstance(message, Due):
            assert all(0 < row.ticked_us <= now_us() for row in message.rows)
            self.came += [(now_us(), row._replace(ticked_us=0)) for row in message.rows]


@pytest.fixture
def came() -> list[tuple[int, DueRow]]:
    Collector.came = []
    return Collector.came


async def entries(firing: Firing, *rows: DueRow) -> int:
    """Schedule rows; answers how many the wheel holds."""
    reply: Reply[int] = Reply()
    await firing.context.boxes.ticker.send(Schedule(rows, reply))
    return await reply.wait(5)


async def test_in_due_order_never_early_hardly_late(came: list[tuple[int, DueRow]]) -> None:
    firing = Firing(AT_ITS_TIME)
    chance = random.Random(7)
    rows = [due_row(chance.uniform(0.01, 30)) for _ in range(3000)]
    async with firing.running(Ticker, Collector):
        for begin in range(0, 3000, 500):
            await entries(firing, *rows[begin : begin + 500])
        await anyio.sleep(31)
    assert [row for _, row in came] == sorted(rows, key=lambda row: row.next_run_at)
    late_us = [when - to_us(row.next_run_at) for when, row in came]
    assert min(late_us) >= 0
    assert max(late_us) <= 2_100


async def test_the_loop_is_not_spun_while_something_is_nearly_due(
    came: list[tuple[int, DueRow]], monkeypatch: pytest.MonkeyPatch
) -> None:
    firing = Firing()
    looks = 0
    wait_s = Ticker._wait_s

    def counted(ticker: Ticker) -> float:
        nonlocal looks
        looks += 1
        return wait_s(ticker)

    monkeypatch.setattr(Ticker, "_wait_s", counted)
    async with firing.running(Ticker, Collector):
        await entries(firing, *[due_row(1 + number / 100 + 0.00037) for number in range(100)])
        await anyio.sleep(3)
    assert len(came) == 100
    assert looks < 350


async def test_c13_a_timer_that_wakes_early_fires_nothing(came: list[tuple[int, DueRow]]) -> None:
    """The cluster's clock runs 2 % slower than the loop's timers: each wait ends too soon."""
    firing = Firing(AT_ITS_TIME)
    loop = asyncio.get_running_loop()
    slow = ClusterClock(lambda: loop.time() * 0.98)
    slow.observe(0, 0, START_US)
    firing.context.clock = slow
    fired_us: list[int] = []

    class Slow(Collector):
        async def handle(self, message: Any) -> None:
            if isinstance(message, Due):
                fired_us.append(slow.now_us())
                self.came += [(slow.now_us(), row._replace(ticked_us=0)) for row in message.rows]

    async with firing.running(Ticker, Slow):
        midnight = due_row(60.0)
        await entries(firing, midnight)
        await anyio.sleep(70)
    assert [row for _, row in came] == [midnight]
    assert 0 <= fired_us[0] - to_us(midnight.next_run_at) <= 2_000


async def test_while_our_clock_is_ahead_what_looks_due_waits(
    came: list[tuple[int, DueRow]],
) -> None:
    firing = Firing(AT_ITS_TIME)
    clock = firing.context.clock
    async with firing.running(Ticker, Collector):
        await anyio.sleep(1)
        for _ in range(8):  # PostgreSQL is 100 ms behind what we thought
            clock.observe(clock.monotonic(), clock.monotonic(), START_US + 900_000)
        assert clock.ahead_us > 90_000
        await entries(firing, due_row(0.95))
        await anyio.sleep(0.049)
        assert came == []
        await anyio.sleep(0.01)
        assert len(came) == 1


@pytest.mark.parametrize("off_s", [3600.0, -3600.0])
async def test_c20_the_wall_clock_of_the_node_does_not_matter(
    off_s: float, came: list[tuple[int, DueRow]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + off_s)
    firing = Firing(AT_ITS_TIME)
    rows = [due_row(number / 10 + 0.5) for number in range(100)]
    async with firing.running(Ticker, Collector):
        await entries(firing, *rows)
        await anyio.sleep(12)
    assert len(came) == 100
    assert all(0 <= when - to_us(row.next_run_at) <= 2_100 for when, row in came)


def test_c20_no_actor_and_no_statement_reads_the_wall_clock() -> None:
    root = Path(__file__).parents[2]
    sources = [p for name in ("actors", "storage", "wheel") for p in (root / name).rglob("*.py")]
    sources += (root / "storage" / "sql").glob("*.sql")
    assert len(sources) > 40
    words = ("time.time(", "datetime.now(", "utcnow(", " now()", "current_timestamp")
    found = [(p.name, word) for p in sources for word in words if word in p.read_text()]
    assert found == []


async def test_a_stale_version_is_ignored_a_newer_one_replaces(
    came: list[tuple[int, DueRow]],
) -> None:
    firing = Firing()
    async with firing.running(Ticker, Collector):
        assert await entries(firing, due_row(5, number=1, version=2)) == 1
        assert await entries(firing, due_row(1, number=1, version=1)) == 1
        await anyio.sleep(2)
        assert came == []
        assert await entries(firing, due_row(3, number=1, version=3)) == 1
        await anyio.sleep(10)
    assert [(row.version, row.next_run_at) for _, row in came] == [(3, at(3))]


async def test_slots_that_are_lost_leave_the_wheel(came: list[tuple[int, DueRow]]) -> None:
    firing = Firing()
    async with firing.running(Ticker, Collector):
        rows = [due_row(2) for _ in range(80)]
        assert await entries(firing, *rows) == 80
        firing.own(SLOTS[:2])
        assert await entries(firing) == 20
        await anyio.sleep(3)
    assert {row.slot for _, row in came} == set(SLOTS[:2])


class Deaf(Collector):
    """A dispatcher that takes nothing: its mailbox fills up."""

    async def run(self) -> None:
        await self.stopping.wait()


async def test_a_stop_while_the_dispatcher_is_full_does_not_hang(
    came: list[tuple[int, DueRow]],
) -> None:
    firing = Firing()
    loop = asyncio.get_running_loop()
    async with firing.running(Ticker, Deaf):
        for _ in range(40):
            await firing.context.boxes.ticker.send(Schedule([due_row(0) for _ in range(1000)]))
        await anyio.sleep(1)
        box = firing.context.boxes.dispatcher
        assert box.depth == box.size
        began = loop.time()
    assert loop.time() - began < 0.1
    assert came == []
