"""What the dispatcher fires, in which order, and never more than the workers will soon fetch."""

import asyncio
from typing import Any

import anyio
import pytest
from firing_rig import SLOTS, Firing, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors import firing as batches
from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.messages import Capacity, Due, Ownership
from duly.storage import claims
from duly.storage.errors import Doubt, StoreUnavailableError
from duly.storage.slots import DueRow
from duly.storage.stream_facts import NOTHING_WAITS


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


async def send(firing: Firing, rows: list[DueRow]) -> None:
    """Put rows into the store and tell the dispatcher that they are due."""
    firing.database.put(*rows)
    for begin in range(0, len(rows), 500):
        await firing.context.boxes.dispatcher.send(Due(rows[begin : begin + 500]))


async def published(firing: Firing, count: int) -> None:
    await wait_for(lambda: len(firing.streams.published) >= count, 60, f"{count} published")


async def test_priority_then_due_time_while_the_window_is_full() -> None:
    firing = Firing(Options(window_floor=100))
    blockers = [due_row(-1000) for _ in range(100)]
    rows = [due_row(-number, priority=number % 10) for number in range(600)]
    async with firing.running(Dispatcher):
        await send(firing, blockers)
        await published(firing, 100)
        await send(firing, rows)
        await anyio.sleep(1)
        assert len(firing.streams.published) == 100
        for number in range(1, 7):
            firing.streams.consume("q", 100)
            await published(firing, 100 + 100 * number)
    best_first = sorted(rows, key=lambda row: (-row.priority, row.next_run_at))
    # Within one batch the claim may answer in any order.
    for begin in range(0, 600, 100):
        batch = firing.streams.ids[100 + begin : 200 + begin]
        assert set(batch) == {row.id for row in best_first[begin : begin + 100]}


@pytest.mark.parametrize(("concurrency", "window"), [(0, 100), (150, 300)])
async def test_undelivered_never_exceeds_the_window(concurrency: int, window: int) -> None:
    firing = Firing(Options(window_floor=100))
    async with firing.running(Dispatcher):
        if concurrency:
            await firing.context.boxes.dispatcher.send(Capacity("q", concurrency))
        await send(firing, [due_row(-1) for _ in range(3000)])
        while len(firing.streams.published) < 3000:
            await anyio.sleep(0.05)
            firing.streams.consume("q", 40)
    assert 0.7 * window < firing.streams.most_undelivered["q"] <= window


async def test_of_short_tasks_more_may_wait_so_that_the_workers_do_not_run_dry() -> None:
    firing = Firing(Options(window_floor=10))
    streams = firing.streams
    async with firing.running(Dispatcher):
        await firing.context.boxes.dispatcher.send(Capacity("q", 50))
        await send(firing, [due_row(-1) for _ in range(4000)])
        while len(streams.published) < 3000:
            await anyio.sleep(0.02)
            streams.consume("q", 1000)
        assert 200 < streams.most_undelivered["q"] <= 400
        # Then workers get slow, and the window is again what it was at first.
        await anyio.sleep(5)
        streams.consume("q", 1000)
        streams.most_undelivered["q"] = 0
        while len(streams.published) < 4000:
            await anyio.sleep(1)
            streams.consume("q", 50)
    assert streams.most_undelivered["q"] <= 110


async def test_queues_take_turns_however_much_one_of_them_has() -> None:
    firing = Firing()
    firing.streams.endless = True
    async with firing.running(Dispatcher):
        await send(firing, [due_row(-9, queue="deep") for _ in range(9000)])
        await published(firing, 200)
        before = len(firing.streams.published)
        await send(firing, [due_row(-1, queue=f"small-{number}") for number in range(5)])
        await published(firing, 9005)
    places = [n for n, one in enumerate(firing.streams.published) if one.queue != "deep"]
    assert len(places) == 5
    assert max(places) - before < 2500


async def test_a_queue_without_workers_is_looked_at_seldom_and_holds_up_no_other() -> None:
    firing = Firing(Options(window_floor=10))
    async with firing.running(Dispatcher):
        await send(firing, [due_row(-1, queue="nobody") for _ in range(50)])
        await anyio.sleep(60)
        assert len(firing.streams.published) == 10
        assert firing.streams.looks < 150
        began = asyncio.get_running_loop().time()
        await send(firing, [due_row(-1, queue="q")])
        await published(firing, 11)
        assert asyncio.get_running_loop().time() - began < 0.05
        firing.streams.consume("nobody", 10)  # a worker came
        await published(firing, 21)
        assert asyncio.get_running_loop().time() - began < 1


async def test_the_first_task_after_a_pause_is_not_delayed_by_what_was_known() -> None:
    firing = Firing(Options(window_floor=10))
    async with firing.running(Dispatcher):
        await send(firing, [due_row(-1) for _ in range(10)])
        await published(firing, 10)
        firing.streams.consume("q", 10)
        await anyio.sleep(10)
        began = asyncio.get_running_loop().time()
        await send(firing, [due_row(10)])
        await published(firing, 11)
        assert asyncio.get_running_loop().time() - began < 0.03


async def test_a_claim_that_did_not_happen_is_tried_again() -> None:
    firing = Firing()
    away = StoreUnavailableError("no connection")
    firing.database.errors.extend([("claim", away, False)] * 3)
    rows = [due_row(-1) for _ in range(50)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 50)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows)


@pytest.mark.parametrize("committed", [True, False])
async def test_a_claim_in_doubt_is_read_back(committed: bool) -> None:
    firing = Firing()
    cut = StoreUnavailableError("cut", in_doubt=True)
    firing.database.errors.append(("claim", cut, committed))
    firing.database.errors.append(("claimed", cut, False))
    rows = [due_row(-1) for _ in range(50)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 50)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows)
    assert firing.database.calls["claim"] == (1 if committed else 2)


async def test_a_claim_in_doubt_is_read_back_when_it_is_decided() -> None:
    """What is still under way may commit after the look: then it would be found by the reaper only."""
    firing, doubt = Firing(), Doubt(1)
    cut = StoreUnavailableError("cut", doubt=doubt)
    firing.database.errors.append(("claim", cut, True))
    rows = [due_row(-1) for _ in range(5)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await anyio.sleep(20)
        assert firing.database.calls["claimed"] == 0
        doubt.over.set()
        await published(firing, 5)


async def test_redis_away_publishes_what_is_claimed_and_claims_no_more() -> None:
    firing = Firing(Options(window_floor=1000))
    rows = [due_row(-1) for _ in range(400)]
    async with firing.running(Dispatcher):
        firing.streams.errors.extend([ConnectionError("away")] * 30)
        await send(firing, rows[:10])
        await wait_for(lambda: firing.database.claimed, 5, "a claim")
        await anyio.sleep(1)
        await send(firing, rows[10:])
        await anyio.sleep(5)
        assert len(firing.database.claimed) == 10
        assert firing.streams.published == []
        firing.streams.errors.clear()
        await published(firing, 400)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows)


async def test_what_ended_before_a_publish_is_sent_again_is_left_out() -> None:
    """The answer was lost, not the tasks: a worker has run some, and they are recorded."""
    firing = Firing()
    rows = [due_row(-1) for _ in range(10)]
    async with firing.running(Dispatcher):
        firing.streams.errors.extend([ConnectionError("the answer is lost")] * 3)
        await send(firing, rows)
        await wait_for(lambda: len(firing.streams.errors) < 3, 5, "a first try")
        for row in rows[:4]:
            del firing.database.claimed[row.id]
        firing.database.errors.append(("running", StoreUnavailableError("away"), False))
        firing.streams.errors.clear()
        await published(firing, 6)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows[4:])


async def test_redis_that_fails_a_look_is_asked_again_soon() -> None:
    firing = Firing(Options(window_floor=10))
    async with firing.running(Dispatcher, tell_s=1000):
        await send(firing, [due_row(-1) for _ in range(20)])
        await published(firing, 10)
        firing.streams.errors.append(ConnectionError("away"))
        await wait_for(lambda: not firing.streams.errors, 5, "a failed look")
        firing.streams.consume("q", 10)
        began = asyncio.get_running_loop().time()
        await published(firing, 20)
        assert asyncio.get_running_loop().time() - began < 0.7
    assert not firing.context.vitals.redis.now


async def test_no_claim_once_the_lease_is_not_surely_valid() -> None:
    firing = Firing()
    async with firing.running(Dispatcher):
        firing.own(for_s=1.0)
        await anyio.sleep(1.1)
        await send(firing, [due_row(-1) for _ in range(20)])
        await anyio.sleep(20)
        assert not firing.database.claimed
        firing.own(for_s=1.0)
        await published(firing, 20)


async def test_a_refused_claim_waits_for_the_news_about_the_slots(
    caplog: pytest.LogCaptureFixture,
) -> None:
    firing = Firing()
    firing.database.epoch = 2
    rows = [due_row(-1) for _ in range(80)]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await anyio.sleep(1)
        assert not firing.database.claimed
        assert 1 < firing.database.calls["claim"] < 15
        assert caplog.text.count("claims are refused") == 1
        firing.own(SLOTS[:4], epoch=2)
        await published(firing, 40)
        await anyio.sleep(1)
    assert {row.slot for row in rows if row.id in firing.database.claimed} == set(SLOTS[:4])


async def test_a_cancelled_or_changed_task_is_not_published() -> None:
    firing = Firing()
    rows = [due_row(-1, version=1) for _ in range(10)]
    async with firing.running(Dispatcher):
        firing.database.put(*rows[2:], rows[1]._replace(version=2))
        await firing.context.boxes.dispatcher.send(Due(rows))
        await published(firing, 8)
        await anyio.sleep(1)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows[2:])


async def test_a_stop_publishes_what_is_claimed() -> None:
    firing = Firing()
    firing.streams.latency_s = 0.5
    async with firing.running(Dispatcher):
        await send(firing, [due_row(-1) for _ in range(100)])
        await wait_for(lambda: firing.database.claimed, 5, "a claim")
    assert sorted(firing.streams.ids) == sorted(firing.database.claimed)


async def test_nothing_is_kept_of_queues_that_are_over() -> None:
    firing = Firing()
    firing.streams.endless = True
    dispatcher = Dispatcher(firing.context)
    firing.own()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.serve, anyio.Event())
        await send(firing, [due_row(-1, queue=f"q{number}") for number in range(300)])
        await published(firing, 300)
        await anyio.sleep(1)
        for number in range(300):
            await firing.context.boxes.dispatcher.send(Capacity(f"q{number}", 0))
        await anyio.sleep(1)
        assert dispatcher._queues == {}
        dispatcher.request_stop()


@pytest.mark.parametrize("slow_s", [1, 600])
async def test_what_was_claimed_long_ago_is_published_only_if_it_still_runs(slow_s: int) -> None:
    """Its node stood still between the two: others have published and recorded what it claimed; or a
    cancel has won, and upkeep has swept its fence."""
    firing = Firing()
    row, cancelled = due_row(-1), due_row(-1)
    fetch = firing.database._fetch

    async def slow_claim(name: str, *args: Any) -> Any:
        found = await fetch(name, *args)
        if name == "claim":
            await anyio.sleep(slow_s)
            del firing.database.claimed[cancelled.id]
        return found

    firing.database._fetch = slow_claim  # type: ignore[method-assign]
    async with firing.running(Dispatcher):
        await send(firing, [row, cancelled])
        await wait_for(lambda: firing.streams.published, 1000, "it is published")
    assert firing.streams.ids == [row.id]


async def test_when_it_is_slow_to_say_what_still_runs_it_is_asked_again() -> None:
    firing = Firing()
    row = due_row(-1)
    fetch = firing.database._fetch
    asked: list[float] = []

    async def slow(name: str, *args: Any) -> Any:
        found = await fetch(name, *args)
        if name == "running":
            asked.append(anyio.current_time())
        if name == "claim" or len(asked) == 1:
            await anyio.sleep(5)
        return found

    firing.database._fetch = slow  # type: ignore[method-assign]
    async with firing.running(Dispatcher):
        await send(firing, [row])
        await wait_for(lambda: firing.streams.published, 1000, "it is published")
    assert firing.streams.ids == [row.id]
    assert len(asked) == 2


async def test_batches_of_one_queue_go_out_in_order_however_long_their_claims_take() -> None:
    firing = Firing(Options(window_floor=10_000))
    rows = [due_row(number - 1000) for number in range(800)]
    fetch, waits = firing.database._fetch, [0.4, 0.3, 0.2, 0.1]

    async def slow_at_first(name: str, *args: Any) -> Any:
        if name == "claim" and waits:
            await anyio.sleep(waits.pop(0))
        return await fetch(name, *args)

    firing.database._fetch = slow_at_first  # type: ignore[method-assign]
    async with firing.running(Dispatcher):
        await send(firing, rows)
        await published(firing, 800)
    assert firing.database.calls["claim"] == 4
    assert firing.streams.ids == [row.id for row in rows]


async def test_while_redis_is_away_nothing_is_claimed_and_one_probe_asks_for_it() -> None:
    firing = Firing(Options(window_floor=100))
    async with firing.running(Dispatcher, tell_s=1000):
        firing.streams.endless = True
        await send(firing, [due_row(-1)])
        await published(firing, 1)
        firing.streams.errors.extend([ConnectionError("away")] * 10)
        await send(firing, [due_row(-1) for _ in range(100)])
        await wait_for(lambda: len(firing.streams.errors) < 8, 60, "it is seen to be away")
        assert "publishing tasks" in firing.context.vitals.redis.now
        await send(firing, [due_row(-1) for _ in range(500)])
        await wait_for(lambda: len(firing.streams.errors) < 3, 60, "it is almost back")
        assert len(firing.database.claimed) == 101
        await published(firing, 601)
    assert not firing.context.vitals.redis.now


async def test_batches_that_overtake_each_other_end_well(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Firing()
    firing = batches.Firing(rig.context)
    rows = [due_row(-1), due_row(-1)]
    rig.database.put(*rows)
    owned, held, claim = Ownership({rows[0].slot: 1}, 1e9), anyio.Event(), claims.claim

    async def slow_claim(*arguments: Any) -> claims.Claim:
        await held.wait()
        return await claim(*arguments)

    monkeypatch.setattr(claims, "claim", slow_claim)
    async with anyio.create_task_group() as fires:
        fires.start_soon(firing.fire, "q", [rows[0]], owned, lambda: NOTHING_WAITS)
        await anyio.sleep(1)
        await firing.fire(
            "q", [rows[1]], Ownership({}, 1e9), lambda: NOTHING_WAITS
        )  # the slot was lost: nothing to do
        held.set()
    assert rig.streams.ids == [rows[0].id]
