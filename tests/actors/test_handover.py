"""Slots that come and go while their tasks are on the way: nothing is half done, nothing is left behind."""

from typing import Any

import anyio
import pytest
from firing_rig import SLOTS, Firing, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors.context import Options
from duly.actors.messages import Capacity, Refused
from duly.storage.slots import DueRow

KEPT = SLOTS[:4]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


def rows_due(due_s: float, count: int = 80) -> list[DueRow]:
    return [due_row(due_s) for _ in range(count)]


async def test_what_is_claimed_is_published_though_its_slot_is_lost_meanwhile() -> None:
    firing = Firing()
    rows = rows_due(5)
    firing.database.put(*rows)
    firing.streams.latency_s = 3.0  # each publication under way for so long
    async with firing.running():
        await wait_for(lambda: len(firing.database.claimed) == 80, 60, "all are claimed")
        assert not firing.streams.published
        firing.own(())
        await anyio.sleep(10)
    # The token decides: whoever owns the slots now finds them running and in the stream.
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows)


async def test_what_waits_in_the_wheel_stays_behind_with_its_slot() -> None:
    firing = Firing()
    rows = rows_due(30)
    firing.database.put(*rows)
    async with firing.running():
        await wait_for(
            lambda: firing.context.vitals.wheel_entries == 80, 20, "all are in the wheel"
        )
        firing.own(KEPT)
        await wait_for(lambda: firing.context.vitals.wheel_entries == 40, 20, "half are")
        await anyio.sleep(60)
        assert {row.slot for row in rows if row.id in firing.database.claimed} == set(KEPT)
        assert sorted(firing.streams.ids) == sorted(row.id for row in rows if row.slot in KEPT)
        firing.own(epoch=1)  # and back again: what has been due since then goes at once
        await wait_for(lambda: len(firing.streams.ids) == 80, 20, "all are published")
    assert len(set(firing.streams.ids)) == 80


async def test_what_waits_for_capacity_stays_behind_with_its_slot() -> None:
    firing = Firing(Options(window_floor=20))
    rows = rows_due(1)
    firing.database.put(*rows)
    async with firing.running():
        await wait_for(lambda: len(firing.streams.ids) == 20, 20, "the window is full")
        firing.own(KEPT)
        await anyio.sleep(2)
        before = set(firing.streams.ids)
        for _ in range(20):
            firing.streams.consume("q", 20)
            await anyio.sleep(2)
    after = [row for row in rows if row.id in firing.streams.ids and row.id not in before]
    assert {row.slot for row in after} == set(KEPT)
    left = {row.slot for row in rows if row.id not in firing.database.claimed}
    assert left <= set(SLOTS) - set(KEPT)


async def test_a_queue_whose_slots_all_went_may_be_forgotten() -> None:
    firing = Firing(Options(window_floor=20))
    firing.database.put(*rows_due(1))
    async with firing.running():
        await wait_for(lambda: len(firing.streams.ids) == 20, 20, "the window is full")
        dispatcher = firing.context.boxes.dispatcher
        firing.own((), for_s=0.0)
        await anyio.sleep(2)
        await dispatcher.send(Capacity("q", 0))  # it has no workers either
        await anyio.sleep(2)
        firing.own(epoch=1)
        firing.streams.endless = True
        firing.streams.consume("q", 20)
        await wait_for(lambda: len(firing.streams.ids) == 80, 20, "all are published")


async def test_a_refused_claim_is_told_to_the_lease_actor() -> None:
    firing = Firing()
    firing.database.put(*rows_due(1))
    firing.database.epoch = 2  # another has taken them
    async with firing.running():
        assert await firing.context.boxes.leases.receive() == Refused()
        firing.own(epoch=2)
        await wait_for(lambda: len(firing.streams.ids) == 80, 20, "all are published")
