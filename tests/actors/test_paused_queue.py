"""A paused queue: nothing of it is claimed, nothing of it is kept, and it is no burden to others."""

import asyncio
from typing import Any

import anyio
import pytest
from firing_rig import Firing, at, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors import intake, ready
from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.messages import Controlled
from duly.actors.prefetcher import Prefetcher
from duly.actors.ready import BROUGHT, LOW
from duly.actors.ticker import Ticker
from duly.storage.queues import Control
from duly.storage.slots import DueRow

MANY = BROUGHT + 2_000
PAUSED = Control("q", paused=True, paused_by="ann", paused_at=at(0))


@pytest.fixture(autouse=True)
def shorter_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that fewer are more than fit."""
    monkeypatch.setattr(ready, "FULL", BROUGHT)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


def control(firing: Firing, *controls: Control) -> None:
    """As the reader of the controls does."""
    assert firing.context.controls.update(controls, 0.0)
    firing.context.boxes.dispatcher.offer(Controlled())


async def published(firing: Firing, count: int, within_s: float = 120) -> None:
    await wait_for(lambda: len(firing.streams.published) >= count, within_s, f"{count} published")


async def test_nothing_of_it_is_claimed_until_it_is_resumed() -> None:
    firing = Firing()
    rows = [due_row(number / 10, priority=number % 10) for number in range(300)]
    control(firing, PAUSED)
    async with firing.running():
        firing.database.put(*rows)
        await anyio.sleep(100)
        assert firing.database.claimed == {}
        assert firing.context.vitals.ready_entries == 0
        control(firing)
        began = asyncio.get_running_loop().time()
        await wait_for(lambda: firing.streams.published, 10, "the first")
        assert asyncio.get_running_loop().time() - began < 0.2
        for number in range(1, 3):
            firing.streams.consume("q", 100)
            await published(firing, 100 * number)
        firing.streams.consume("q", 100)
        await published(firing, 300)
    best_first = sorted(rows, key=lambda row: (-row.priority, row.next_run_at))
    for begin in range(0, 300, 100):
        batch = firing.streams.ids[begin : begin + 100]
        assert set(batch) == {row.id for row in best_first[begin : begin + 100]}


async def test_a_pause_while_its_tasks_wait_for_room_ends_that_wait() -> None:
    firing = Firing(Options(window_floor=10))
    async with firing.running():
        firing.database.put(*(due_row(-1) for _ in range(500)))
        await published(firing, 10)
        control(firing, PAUSED)
        await anyio.sleep(1)
        firing.streams.consume("q", 10)
        await anyio.sleep(10)
        assert len(firing.database.claimed) == 10
        control(firing)
        await published(firing, 20)


async def test_what_was_claimed_before_the_pause_goes_out() -> None:
    firing = Firing()
    firing.database.latency_s = 0.5
    async with firing.running():
        firing.database.put(*(due_row(-1) for _ in range(10)))
        await wait_for(
            lambda: firing.database.calls["due"] + firing.database.calls["sweep"] > 1,
            60,
            "the rows are read",
        )
        await anyio.sleep(0.2)  # their claim is under way
        control(firing, PAUSED)
        await published(firing, 10)
        assert len(firing.database.claimed) == 10


async def test_other_queues_go_on_and_nobody_polls() -> None:
    firing = Firing()
    firing.streams.endless = True
    control(firing, PAUSED)
    async with firing.running():
        firing.database.put(*(due_row(-1) for _ in range(MANY)))
        await anyio.sleep(60)
        looks, read = firing.streams.looks, firing.database.rows_read
        calls = firing.database.calls.copy()
        await anyio.sleep(60)
        assert firing.streams.looks == looks
        assert firing.database.rows_read == read
        assert firing.database.calls["due_best"] == calls["due_best"]
        assert firing.context.vitals.ready_entries == 0
        assert firing.context.vitals.wheel_entries == 0
        began = asyncio.get_running_loop().time()
        firing.database.put(due_row(150, queue="other"))
        await published(firing, 1)
        assert asyncio.get_running_loop().time() - began < 31
        assert [one.queue for one in firing.streams.published] == ["other"]
        control(firing)
        await published(firing, 1 + MANY)
    assert len(set(firing.streams.ids)) == 1 + MANY


async def test_pauses_and_resumes_in_quick_succession_lose_nothing() -> None:
    firing = Firing(Options(window_floor=20))
    rows: list[DueRow] = [due_row(number / 100) for number in range(LOW)]
    async with firing.running():
        firing.database.put(*rows)
        for number in range(100):
            control(firing, *([PAUSED] if number % 2 == 0 else []))
            await anyio.sleep(0.013 * (number % 7))
            firing.streams.consume("q", 20)
        while len(firing.streams.published) < LOW:
            await anyio.sleep(0.05)
            firing.streams.consume("q", 20)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows)


@pytest.mark.parametrize("victim", [Dispatcher, Prefetcher])
async def test_an_actor_that_starts_anew_leaves_it_alone(victim: Any) -> None:
    class Dying(victim):  # type: ignore[misc]
        async def run(self) -> None:
            with anyio.fail_after(3.0):
                await super().run()

    firing = Firing()
    control(firing, PAUSED)
    actors = [Dying if actor is victim else actor for actor in (Ticker, Dispatcher, Prefetcher)]
    async with firing.running(*actors, may_crash=True) as supervisor:
        firing.database.put(*(due_row(-1) for _ in range(100)))
        await anyio.sleep(60)
        assert firing.database.claimed == {}
        control(firing)
        await published(firing, 100)
        assert sum(one.restarts for one in supervisor.statistics()) > 3


async def test_a_large_one_costs_little_and_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look goes past a part of it; the looks take turns, so that what is behind it is found too."""
    monkeypatch.setattr(intake, "PAGE", 40)
    firing = Firing()
    firing.streams.endless = True
    control(firing, PAUSED)
    firing.database.put(*(due_row(-3600 - number) for number in range(6_000)))
    async with firing.running():
        await anyio.sleep(30)
        before = firing.database.rows_looked_at
        for number in range(5):
            firing.database.put(due_row(asyncio.get_running_loop().time(), queue="other"))
            await published(firing, number + 1, within_s=0.6)
            await anyio.sleep(0.5)
        firing.database.put(due_row(-100, queue="other"))
        await wait_for(
            lambda: len(firing.streams.published) == 6, 15, "it is found behind the rest"
        )
        passed_s = asyncio.get_running_loop().time() - 30
    # Two sweeps a second, each a part of 8 slots, and the pages of what is due of late.
    assert firing.database.rows_looked_at - before < 2_000 * (passed_s + 1)
