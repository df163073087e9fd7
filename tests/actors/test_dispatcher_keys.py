"""Tasks with concurrency keys: never too many at once, soon after one has ended, and in nobody's way."""

import asyncio
from typing import Any

import anyio
import pytest
from firing_rig import Firing, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors import wakes
from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.key_waits import FIRST_S, LONGEST_S, KeyWaits
from duly.actors.messages import Controlled, Due, Freed
from duly.storage.errors import StoreUnavailableError
from duly.storage.queues import Control
from duly.storage.slots import DueRow


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


def now() -> float:
    return asyncio.get_running_loop().time()


async def send(firing: Firing, rows: list[DueRow]) -> None:
    firing.database.put(*rows)
    for begin in range(0, len(rows), 500):
        await firing.context.boxes.dispatcher.send(Due(rows[begin : begin + 500]))


async def published(firing: Firing, count: int) -> None:
    await wait_for(lambda: len(firing.streams.published) >= count, 60, f"{count} published")


async def test_no_more_than_the_limit_and_the_next_as_soon_as_it_is_told() -> None:
    firing = Firing()
    firing.database.limits["k"] = 3
    rows = [due_row(number - 100, key="k") for number in range(30)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await anyio.sleep(20)
        assert firing.streams.ids == [row.id for row in rows[:3]]
        for number in range(27):
            began = now()
            firing.database.end(rows[number].id)
            await firing.context.boxes.dispatcher.send(Freed(frozenset({"k"})))
            await published(firing, number + 4)
            assert now() - began < 0.1
    assert firing.streams.ids == [row.id for row in rows]
    assert firing.database.most_running["k"] == 3


async def test_a_place_of_which_nobody_told_is_found_all_the_same() -> None:
    firing = Firing()
    rows = [due_row(number - 100, key="k") for number in range(3)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 1)
        calls = firing.database.calls["claim_in_turn"]
        await anyio.sleep(60)
        assert firing.database.calls["claim_in_turn"] - calls < 60, "it looks seldom"
        firing.database.end(rows[0].id)
        began = now()
        await published(firing, 2)
        assert now() - began <= LONGEST_S + 0.1


async def test_a_key_without_room_holds_up_nobody_whatever_its_priority() -> None:
    firing = Firing(Options(window_floor=10))
    urgent = [due_row(-100, key="k", priority=9) for _ in range(2000)]
    others = [due_row(-1, priority=0) for _ in range(50)]
    async with firing.running(Dispatcher):
        await send(firing, urgent + others)
        while len(firing.streams.published) < 51:
            await anyio.sleep(0.02)
            firing.streams.consume("q", 10)
    assert {row.id for row in others} < set(firing.streams.ids)


async def test_what_a_key_has_in_the_store_alone_runs_too() -> None:
    firing = Firing()
    firing.database.limits["k"] = 40
    firing.streams.endless = True
    rows = [due_row(number - 5000, key="k") for number in range(2500)]
    other = due_row(-1)
    async with firing.running():
        firing.database.put(*rows)
        while len(firing.streams.published) < 2500:
            await anyio.sleep(0.01)
            for task_id in set(firing.streams.ids).intersection(firing.database.claimed):
                firing.database.end(task_id)
            await firing.context.boxes.dispatcher.send(Freed(frozenset({"k"})))
            if len(firing.streams.published) > 100 and other.id not in firing.database.rows:
                firing.database.put(other)
        assert firing.database.most_running["k"] <= 40
    # In due order, but for the handful that are tried at a time.
    numbers = [
        one.id.int - rows[0].id.int for one in firing.streams.published if one.id != other.id
    ]
    assert all(abs(number - place) <= 200 for place, number in enumerate(numbers))


async def test_keys_do_not_keep_the_same_queue_of_other_keys_waiting() -> None:
    firing = Firing()
    firing.streams.endless = True
    rows = [due_row(-1, key=f"k{number % 300}") for number in range(600)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 300)
        await anyio.sleep(5)
    assert len(firing.streams.published) == 300
    assert max(firing.database.most_running.values()) == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_claim_in_turn_in_doubt_is_read_back(committed: bool) -> None:
    firing = Firing()
    firing.database.limits["k"] = 2
    cut = StoreUnavailableError("cut", in_doubt=True)
    firing.database.errors.append(("claim_in_turn", cut, committed))
    rows = [due_row(number - 50, key="k") for number in range(5)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 2)
        await anyio.sleep(5)
    assert firing.streams.ids == [row.id for row in rows[:2]]


async def test_a_cancelled_task_leaves_its_place_to_the_next() -> None:
    firing = Firing()
    rows = [due_row(number - 50, key="k") for number in range(5)]
    async with firing.running(Dispatcher):
        firing.database.put(*rows[2:])  # the store does not know the first two any more
        began = now()
        await firing.context.boxes.dispatcher.send(Due(rows))
        await published(firing, 1)
        assert now() - began < 0.1
    assert firing.streams.ids == [rows[2].id]


async def test_every_node_is_told_of_the_keys_that_ended_attempts_held() -> None:
    firing = Firing()
    await wakes.freed(firing.context, [("q", None), ("r", None)])
    assert firing.streams.signals.freed == []
    await wakes.freed(firing.context, [("q", "b"), ("q", None), ("q", "a"), ("r", "b")])
    (message,) = firing.streams.signals.freed
    said = wakes.decode(message)
    assert isinstance(said, wakes.FreedKeys)
    assert (said.node, said.freed) == ("node", ["a", "b"])
    assert await firing.context.boxes.dispatcher.receive() == Freed(frozenset({"a", "b"}))
    firing.streams.errors.append(ConnectionError("away"))
    await wakes.freed(firing.context, [("q", "a")])  # they look anyway


async def test_waits_double_up_to_a_limit_and_a_busy_key_is_tried_at_once() -> None:
    waits = KeyWaits(now)
    for least in (FIRST_S / 2, FIRST_S, 2 * FIRST_S, LONGEST_S / 2, LONGEST_S / 2):
        waits.begin("q", "k", busy=False)
        assert least <= waits.wait_s(100) <= 2 * least
        await anyio.sleep(LONGEST_S)
        assert waits.due() == [("q", "k")]
        assert waits.due() == []
    waits.begin("q", "k", busy=True)
    assert waits.wait_s(100) < 0.05
    waits.over("q", "k")
    await anyio.sleep(1)
    assert waits.due() == []
    waits.begin("q", "k", busy=False)
    assert waits.wait_s(100) <= FIRST_S


def limit(firing: Firing, most: int | None) -> None:
    firing.database.queue_limits = {} if most is None else {"q": most}
    firing.context.controls.update([Control("q", max_in_flight=most)], 0.0)


async def test_no_more_of_a_queue_than_max_in_flight_and_other_queues_go_on() -> None:
    firing = Firing()
    limit(firing, 3)
    rows = [due_row(number - 100) for number in range(40)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 3)
        other = due_row(-1, queue="r")
        await send(firing, [other])
        await published(firing, 4)
        await anyio.sleep(10)
        assert firing.streams.ids == [*(row.id for row in rows[:3]), other.id]
        calls = firing.database.calls["claim_in_turn"]
        await anyio.sleep(60)
        assert firing.database.calls["claim_in_turn"] - calls < 60, "it looks seldom"
        for number in range(37):
            began = now()
            firing.database.end(rows[number].id)
            message = Freed(frozenset(), frozenset({"q"}))
            await firing.context.boxes.dispatcher.send(message)
            await published(firing, number + 5)
            assert now() - began < 0.1
    assert firing.database.most_in_queue == 3


async def test_a_higher_or_no_limit_counts_at_once_and_a_lost_message_costs_little() -> None:
    firing = Firing()
    limit(firing, 1)
    rows = [due_row(number - 100) for number in range(40)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 1)
        await anyio.sleep(20)
        began = now()
        limit(firing, 5)
        await firing.context.boxes.dispatcher.send(Controlled())
        await published(firing, 5)
        assert now() - began < 0.1
        firing.database.end(rows[0].id)
        await published(firing, 6)
        assert now() - began < 0.2 + LONGEST_S
        limit(firing, None)
        await firing.context.boxes.dispatcher.send(Controlled())
        await published(firing, 40)
        assert now() - began < 0.4 + LONGEST_S


async def test_a_limited_queue_with_keys_holds_both() -> None:
    firing = Firing()
    limit(firing, 4)
    firing.database.limits["k"] = 2
    rows = [due_row(-50, key="k") for _ in range(20)] + [due_row(-1) for _ in range(20)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 4)
        while len(firing.streams.published) < 40:
            await anyio.sleep(0.5)
            for task_id in list(firing.database.claimed)[:2]:
                firing.database.end(task_id)
            message = Freed(frozenset({"k"}), frozenset({"q"}))
            await firing.context.boxes.dispatcher.send(message)
    assert firing.database.most_in_queue == 4
    assert firing.database.most_running["k"] == 2


async def test_ends_in_limited_queues_are_told() -> None:
    firing = Firing()
    limit(firing, 4)
    await wakes.freed(firing.context, [("q", None), ("r", None)])
    said = wakes.decode(firing.streams.signals.freed[0])
    assert isinstance(said, wakes.FreedKeys)
    assert (said.freed, said.queues) == ([], ["q"])
    message = await firing.context.boxes.dispatcher.receive()
    assert message == Freed(frozenset(), frozenset({"q"}))
