"""Who owns a slot: take-overs, letting go, and sessions that hold on to slots."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from store_rig import ME, NOW, own_all, submit
from waiting import wait_for

from duly.storage import claims, slots
from duly.storage.database import Database
from duly.storage.slots import SlotState, Taken, session_name


@pytest.fixture
async def session(fresh_database: str) -> AsyncIterator[Any]:
    """A session of the node `old` beside our own pool."""
    settings = {"application_name": session_name("old")}
    connection = await asyncpg.connect(fresh_database, server_settings=settings, timeout=20)
    yield connection
    connection.terminate()


async def test_every_take_over_raises_the_epoch(db: Database) -> None:
    assert await slots.take(db, [1, 2], "a", NOW) == Taken({1: 1, 2: 1}, {})
    assert await slots.take(db, [2, 3], "b", NOW) == Taken({2: 2, 3: 1}, {})
    assert await slots.take(db, [2], "b", NOW) == Taken({2: 3}, {})
    states = await slots.states(db, [0, 1, 2])
    assert states == {0: SlotState(None, 0), 1: SlotState("a", 1), 2: SlotState("b", 3)}


async def test_take_overs_at_once_each_get_an_epoch_of_their_own(db: Database) -> None:
    async def take(owner: str) -> dict[int, int]:
        epochs: dict[int, int] = {}
        left = list(range(16))
        while left:
            taken = await slots.take(db, left, owner, NOW)
            epochs |= taken.epochs
            left = list(taken.busy)
        return epochs

    taken = await asyncio.gather(*(take(f"node-{n}") for n in range(8)))
    for slot in range(16):
        assert sorted(epochs[slot] for epochs in taken) == list(range(1, 9))


async def test_what_others_may_hold_is_taken_only_from_nobody_or_ourselves(db: Database) -> None:
    await slots.take(db, [1], ME, NOW)
    await slots.take(db, [2, 3], "b", NOW)
    taken = await slots.take(db, [0, 1, 2, 3], ME, NOW, unless_others=[0, 1, 2])
    assert taken == Taken({0: 1, 1: 2, 3: 2}, {})
    assert (await slots.states(db, [2]))[2] == SlotState("b", 1)


async def test_who_lets_go_claims_no_more_and_another_may_take(db: Database) -> None:
    epochs = await own_all(db)
    (row,) = await submit(db)
    others = [slot for slot in range(slots.SLOTS) if slot != row.slot]
    await slots.take(db, others[:5], "b", NOW)
    await slots.let_go(db, range(slots.SLOTS), ME, NOW)
    assert await claims.claim(db, ME, [row], epochs, NOW) == claims.Claim(False, [])
    states = await slots.states(db, [row.slot, others[0]])
    assert states == {row.slot: SlotState(None, 2), others[0]: SlotState("b", 2)}
    assert await slots.take(db, [row.slot], "c", NOW, [row.slot]) == Taken({row.slot: 3}, {})


async def test_a_session_that_holds_slots_for_long_is_ended(db: Database, session: Any) -> None:
    await slots.take(db, [1], "old", NOW)
    await session.execute("begin")
    await session.execute("select from slots where slot = 1 for share")
    assert await slots.take(db, [1, 2], "new", NOW) == Taken({2: 1}, {1: "old"})
    assert await slots.end_sessions(db, ["old"], 60) == 0  # not yet
    assert await slots.end_sessions(db, ["new", "ol"], 0) == 0  # not that one
    assert await slots.end_sessions(db, ["old"], 0) == 1
    await wait_for(session.is_closed, 60, "the session has ended")

    async def taken() -> bool:
        return (await slots.take(db, [1], "new", NOW)).epochs == {1: 2}

    await wait_for(taken, 60, "the slot is free")


async def test_a_session_that_holds_no_slot_is_left_alone(db: Database, session: Any) -> None:
    await session.execute("begin")
    await session.execute("select from tasks for share")
    await session.execute("select from slots")
    assert await slots.end_sessions(db, ["old"], 0) == 0
    assert await session.fetchval("select 1") == 1


def test_session_names_fit_and_keep_what_tells_processes_apart() -> None:
    names = [session_name(f"{'n' * 100}-{pid}-{pid:08x}") for pid in (1, 2)]
    assert all(len(name) <= 63 for name in names)
    assert names[0] != names[1]
    assert session_name("a-1-f") == "duly a-1-f"
