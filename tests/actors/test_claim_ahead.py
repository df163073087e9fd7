"""Tasks are claimed ahead of their due times, and published at them."""

import asyncio
from typing import Any

import anyio
import pytest
from firing_rig import START_US, Firing, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.lead import Lead
from duly.actors.messages import Schedule
from duly.actors.ticker import Ticker
from duly.storage.slots import DueRow
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import to_us


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


async def schedule(firing: Firing, *rows: DueRow) -> None:
    firing.database.put(*rows)
    await firing.context.boxes.ticker.send(Schedule(list(rows)))


def lags_us(firing: Firing) -> list[int]:
    due = {row.id: to_us(row.next_run_at) for row in firing.database.rows.values()}
    return [one.at_us - due[one.id] for one in firing.streams.published]


async def test_none_is_published_early_and_the_claim_makes_none_late() -> None:
    firing = Firing()
    firing.database.latency_s = 0.006
    firing.streams.endless = True
    rows = [due_row(1 + number * 0.00213) for number in range(500)]
    async with firing.running(Ticker, Dispatcher):
        await schedule(firing, *rows)
        await wait_for(lambda: len(firing.streams.published) == 500, 60, "all")
    lags = lags_us(firing)
    assert min(lags) >= 0
    assert max(lags) <= 5_000  # a claim alone takes 6 ms
    assert firing.database.calls["claim"] < 150


async def test_without_a_lead_a_task_is_claimed_when_it_is_due() -> None:
    firing = Firing(Options(claim_ahead_s=0))
    async with firing.running(Ticker, Dispatcher):
        await schedule(firing, due_row(1.0), due_row(1.01))
        await anyio.sleep(0.999)
        assert not firing.database.claimed
        await wait_for(lambda: len(firing.streams.published) == 2, 60, "both")
    assert min(lags_us(firing)) >= 2_000


async def test_what_comes_late_does_not_wait_for_what_is_held() -> None:
    firing = Firing(Options(claim_ahead_s=0.4))
    firing.database.latency_s = 0.15  # which makes the lead long
    held, late = due_row(5.0), due_row(4.7)
    async with firing.running(Ticker, Dispatcher):
        await schedule(firing, *[due_row(number / 10) for number in range(40)])
        await anyio.sleep(4.0)
        await schedule(firing, held)
        await wait_for(lambda: held.id in firing.database.claimed, 60, "a claim ahead")
        firing.database.latency_s = 0.002
        await schedule(firing, late)
        await wait_for(lambda: held.id in firing.streams.ids, 60, "both")
    at_us = {one.id: one.at_us - START_US for one in firing.streams.published}
    assert at_us[held.id] >= 5_000_000
    assert at_us[late.id] < 4_950_000


async def test_many_batches_that_are_held_hold_up_no_other() -> None:
    firing = Firing(Options(claim_ahead_s=0.4))
    firing.database.latency_s = 0.15
    rows = [due_row(3 + number / 1_000, queue=f"q{number % 12}") for number in range(1_200)]
    async with firing.running(Ticker, Dispatcher):
        await schedule(firing, *[due_row(number / 10) for number in range(20)])
        await schedule(firing, *rows)
        await wait_for(lambda: len(firing.streams.published) == 1_220, 60, "all")
    assert min(lags_us(firing)) >= 0


async def test_while_our_clock_is_ahead_what_looks_due_is_held() -> None:
    firing = Firing()
    clock: ClusterClock = firing.context.clock
    loop = asyncio.get_running_loop()
    async with firing.running(Ticker, Dispatcher):
        await anyio.sleep(1)
        for _ in range(8):  # PostgreSQL is 100 ms behind what we thought
            clock.observe(clock.monotonic(), clock.monotonic(), START_US + 900_000)
        await schedule(firing, due_row(0.95))
        await wait_for(lambda: bool(firing.streams.published), 60, "it")
        assert loop.time() >= 1.05


def test_the_lead_follows_what_claims_take_up_to_its_bound() -> None:
    lead = Lead(0.04)
    for _ in range(100):
        lead.took(0.001)
    assert 2_000 <= lead.us < 6_000
    assert lead.us < lead.reach_us <= 40_000
    for _ in range(100):
        lead.took(1.0)
    assert lead.us == lead.reach_us == 40_000
