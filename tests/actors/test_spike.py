"""More due in a minute than the wheel may hold: paged through it, on time and in order, whoever told of it."""

import random
from typing import Any

import anyio
import pytest
from firing_rig import SLOTS, START_US, Firing, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors import ready, refills
from duly.actors.context import Options
from duly.actors.messages import Due, Schedule
from duly.actors.ticker import Ticker
from duly.storage.slots import DueRow
from duly.wheel.durations import to_us

CAP = 1_000
COUNT = 20_000
FIRST_S, MINUTE_S = 10, 60
SOON = 2 * COUNT // MINUTE_S
"""Tasks that are due within two seconds: those come into a full wheel, too."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


@pytest.fixture
def short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the line, so that less than a spike fills it."""
    for module, name, value in (
        (ready, "FULL", 1_000),
        (ready, "BROUGHT", 1_000),
        (ready, "_MAKES_WAY", 100),
        (ready, "LOW", 250),
        (refills, "BROUGHT", 1_000),
    ):
        monkeypatch.setattr(module, name, value)


def spike() -> list[Any]:
    chance = random.Random(2)
    return [due_row(FIRST_S + chance.uniform(0, MINUTE_S)) for _ in range(COUNT)]


@pytest.mark.parametrize("told", [False, True])
async def test_a_spike_is_paged_through_the_wheel_in_due_order(told: bool) -> None:
    """Read from the store alone, or told of task by task at its submission, as millions may be."""
    firing = Firing(Options(wheel_cap=CAP))
    firing.streams.endless = True
    rows = spike()
    firing.database.put(*rows)
    most, most_ready = 0, 0
    async with firing.running():
        if told:
            for begin in range(0, COUNT, 500):
                await firing.context.boxes.ticker.send(Schedule(rows[begin : begin + 500]))
        while len(firing.streams.published) < COUNT:
            await anyio.sleep(0.1)
            most = max(most, firing.context.vitals.wheel_entries)
            most_ready = max(most_ready, firing.context.vitals.ready_entries)
    assert len(set(firing.streams.ids)) == COUNT
    assert CAP <= most <= CAP + SOON + len(SLOTS)
    assert most_ready <= SOON
    dues_us = [to_us(firing.database.rows[one.id].next_run_at) for one in firing.streams.published]
    lags_us = [one.at_us - due for one, due in zip(firing.streams.published, dues_us, strict=True)]
    assert min(lags_us) >= 0
    assert max(lags_us) < 100_000


async def test_a_spike_without_workers_takes_no_more_memory_than_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ready, "FULL", 10_000)
    firing = Firing(Options(wheel_cap=CAP, window_floor=100))
    firing.database.put(*spike())
    most, most_ready = 0, 0
    async with firing.running():
        while (firing.context.clock.now_us() - START_US) < (FIRST_S + MINUTE_S + 20) * 1e6:
            await anyio.sleep(0.5)
            most = max(most, firing.context.vitals.wheel_entries)
            most_ready = max(most_ready, firing.context.vitals.ready_entries)
        assert 75 <= len(firing.streams.published) <= 100  # the window, or nearly
        assert most <= CAP + SOON + len(SLOTS)
        assert most_ready <= 10_000
        while len(firing.streams.published) < COUNT:
            firing.streams.consume("q", 100)
            await anyio.sleep(0.02)
    order = [to_us(firing.database.rows[one].next_run_at) for one in firing.streams.ids]
    latest = 0
    for due_us in order:
        assert due_us > latest - 2_000_000  # those that were claimed together, at once
        latest = max(latest, due_us)


async def test_what_falls_due_faster_than_it_runs_still_runs_in_due_order(
    short_line: None,
) -> None:
    """Its line is full after some seconds, and more falls due until the end."""
    firing = Firing(Options(window_floor=50))
    chance = random.Random(3)
    firing.database.put(*[due_row(chance.uniform(1, 14)) for _ in range(6_500)])
    async with firing.running():
        while firing.context.clock.now_us() - START_US < 15_000_000:
            firing.streams.consume("q", 20)
            await anyio.sleep(0.1)
    started = set(firing.streams.ids)
    assert len(started) > 2_500
    dues_us = {one: to_us(row.next_run_at) for one, row in firing.database.rows.items()}
    left_us = min(due for one, due in dues_us.items() if one not in started)
    # But for those that were claimed together, at once.
    assert max(dues_us[one] for one in started) < left_us + 500_000


def slowly(firing: Firing, name: str, takes_s: float) -> None:
    """What this statement reads is known only so much later."""
    fetch = firing.database._fetch

    async def _fetch(called: str, *args: Any) -> Any:
        found = await fetch(called, *args)
        if called == name:
            await anyio.sleep(takes_s)
        return found

    database: Any = firing.database
    database._fetch = _fetch


async def test_what_falls_due_while_a_refill_is_read_does_not_run_before_what_it_brings(
    short_line: None,
) -> None:
    """Three times what runs falls due, more than the wheel holds; a refill takes longer than what is in line then."""
    firing = Firing(Options(window_floor=50, wheel_cap=1_000))
    slowly(firing, "due_best", 1.5)
    chance = random.Random(4)
    firing.database.put(*[due_row(chance.uniform(1, 11)) for _ in range(9_000)])
    async with firing.running():
        while len(firing.streams.published) < 9_000:
            firing.streams.consume("q", 30)
            await anyio.sleep(0.1)
    order = [to_us(firing.database.rows[one].next_run_at) for one in firing.streams.ids]
    latest, most_us = 0, 0
    for due_us in order:
        latest = max(latest, due_us)
        most_us = max(most_us, latest - due_us)
    assert most_us < 250_000, most_us  # those that were claimed together, at once
    assert len(set(firing.streams.ids)) == 9_000


async def test_a_refill_does_not_wait_for_the_end_of_a_sweep(short_line: None) -> None:
    firing = Firing(Options(window_floor=100))
    slowly(firing, "due_but", 3)
    firing.database.put(*[due_row(number / 10_000) for number in range(8_000)])
    async with firing.running():
        await anyio.sleep(10)
        began_us = firing.context.clock.now_us()
        while len(firing.streams.published) < 8_000:
            firing.streams.consume("q", 50)
            await anyio.sleep(0.05)
        took_s = (firing.context.clock.now_us() - began_us) / 1e6
    assert took_s < 1.1 * 8_000 / 1_000


async def test_what_a_full_wheel_turned_away_is_read_when_it_has_room() -> None:
    """Though the pass had gone past it: long before the sweep would find it."""
    firing = Firing(Options(wheel_cap=8))
    firing.streams.endless = True
    firing.database.put(*[due_row(20) for _ in range(8)])
    wheel, ticker = firing.context.vitals, firing.context.boxes.ticker
    async with firing.running():
        await wait_for(lambda: wheel.wheel_entries == 8, 5, "it is full")
        await anyio.sleep(5)
        later = due_row(19)
        firing.database.put(later)
        await ticker.send(Schedule([later]))
        await anyio.sleep(5)
        assert wheel.wheel_entries == 8
        firing.own(tuple(slot for slot in SLOTS if slot != (later.slot + 1) % len(SLOTS)))
        await wait_for(lambda: wheel.wheel_entries == 7, 0.2, "it has room")
        await wait_for(lambda: wheel.wheel_entries == 8, 1, "it is full again")
        await wait_for(lambda: len(firing.streams.published) >= 8, 30, "they fire")
    assert later.id in firing.streams.ids


async def test_a_change_of_what_is_in_a_full_wheel_is_taken() -> None:
    firing = Firing(Options(wheel_cap=1))
    row = due_row(30)
    firing.database.put(row)
    ticker = firing.context.boxes.ticker
    async with firing.running(Ticker):
        await ticker.send(Schedule([row]))
        await ticker.send(Schedule([due_row(40)]))
        sooner = due_row(20, number=row.id.int, version=1)
        await ticker.send(Schedule([sooner]))
        await wait_for(lambda: ticker.depth == 0, 5, "all is taken")
        assert firing.context.vitals.wheel_entries == 1
        dispatcher, due = firing.context.boxes.dispatcher, list[DueRow]()
        while not due:
            messages = await dispatcher.receive_batch(10, 25)
            dispatcher.handled()
            due += [row for one in messages if isinstance(one, Due) for row in one.rows]
        assert [(row.id, row.version) for row in due] == [(row.id, 1)]


async def test_tasks_whose_keys_have_no_room_are_in_nobodys_way_when_more_is_due_than_fits(
    short_line: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as many as a refill, due before all others, and wait here already."""
    for module in (ready, refills):
        monkeypatch.setattr(module, "KEPT", 100)
    firing = Firing(Options(window_floor=50))
    held = [due_row(-100 + number / 1000, key=f"k{number % 10}") for number in range(1_000)]
    others = [due_row(number / 500) for number in range(3_000)]
    firing.database.put(*held, *others)
    async with firing.running():
        await anyio.sleep(8)  # nobody works: the line is full
        while firing.context.clock.now_us() - START_US < 20_000_000:
            firing.streams.consume("q", 50)
            await anyio.sleep(0.05)
    assert set(firing.streams.ids) == {row.id for row in held[:10] + others}
