"""What falls due reaches the wheel: by the pass, or by the sweep; and not more than fits."""

import asyncio
import itertools
import random
from typing import Any

import anyio
import pytest
from firing_rig import SLOTS, START_US, TIMEOUT_S, Firing, Published, at, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors import intake, ready, sweeping
from duly.actors.context import Options
from duly.actors.dispatcher import Dispatcher
from duly.actors.messages import Due, Ownership, Saturated, SaturatedKeys
from duly.actors.prefetcher import Prefetcher
from duly.actors.refills import Refills
from duly.actors.ticker import Ticker
from duly.storage import sweeps
from duly.storage.errors import StoreUnavailableError
from duly.wheel.durations import to_us


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


FULL = 10_000


@pytest.fixture(autouse=True)
def shorter_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is soon full."""
    monkeypatch.setattr(ready, "FULL", FULL)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pages of few rows."""
    monkeypatch.setattr(intake, "PAGE", 40)


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def published(firing: Firing, count: int, within_s: float = 60) -> None:
    await wait_for(lambda: len(firing.streams.published) >= count, within_s, f"{count} published")


def firing_endless(**options: Any) -> Firing:
    firing = Firing(Options(**options))
    firing.streams.endless = True
    return firing


@pytest.mark.usefixtures("small_pages")
async def test_pages_lose_no_row_and_each_fires_on_time() -> None:
    """Many rows of the same instant, over page ends, within and beyond the horizon."""
    firing = firing_endless()
    chance = random.Random(3)
    rows = [due_row(chance.choice([1, 2, 2.5, 40, 150, 300])) for _ in range(1500)]
    firing.database.put(*rows)
    async with firing.running():
        await published(firing, 1500, within_s=310)
    assert sorted(firing.streams.ids) == sorted(row.id for row in rows)
    lags_us = [lag_us(firing, one) for one in firing.streams.published]
    assert max(lags_us) < 100_000


def lag_us(firing: Firing, one: Published) -> int:
    return one.at_us - to_us(firing.database.rows[one.id].next_run_at)


async def test_a_lost_wake_is_found_by_the_sweep_within_half_a_second() -> None:
    firing = firing_endless()
    async with firing.running():
        await anyio.sleep(10.1)
        for number in range(20):
            began = seconds()
            firing.database.put(due_row(began))
            await published(firing, number + 1, within_s=0.5 + 0.05)
            await anyio.sleep(0.37)


async def test_a_late_commit_behind_the_cursor_fires_on_time() -> None:
    firing = firing_endless()
    firing.database.put(*[due_row(60 + number) for number in range(8)])
    async with firing.running():
        await anyio.sleep(20.2)  # the pass has read up to 120 s
        late = due_row(25.0)
        firing.database.put(late)
        await published(firing, 1)
        assert firing.streams.ids == [late.id]
        assert seconds() - 25 < 0.05


async def test_what_a_node_knows_is_not_read_again() -> None:
    """In the wheel, in line, or being claimed; of a later version it is."""
    firing = firing_endless()
    firing.streams.endless = False
    rows = [due_row(3 + number / 100, queue="qr"[number % 2]) for number in range(800)]
    firing.database.put(*rows)
    async with firing.running():
        await wait_for(lambda: firing.context.vitals.wheel_entries == 800, 2, "all in the wheel")
        read = firing.database.rows_read
        await anyio.sleep(9)  # some are published, most are in line
        assert firing.streams.published
        assert firing.database.rows_read - read < 20  # of what was claimed while it was looked at
        changed = [row._replace(version=1) for row in rows[:50:-1][:10]]
        firing.database.put(*changed)
        await anyio.sleep(2)
        assert 10 <= firing.database.rows_read - read < 30


async def test_where_sweeps_take_long_they_look_further_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swept = sweeps.sweep

    async def slowly(*args: Any) -> Any:
        found = await swept(*args)
        await anyio.sleep(0.4)
        return found

    monkeypatch.setattr(sweeps, "sweep", slowly)
    firing = firing_endless()
    firing.database.put(*[due_row(60 + number) for number in range(8)])
    async with firing.running():
        await anyio.sleep(20.2)  # the pass has read up to 120 s
        before = firing.database.calls["sweep"]
        firing.database.put(*[due_row(30 + number / 20) for number in range(100)])
        await published(firing, 100)
        assert firing.database.calls["sweep"] - before <= 9
    assert max(lag_us(firing, one) for one in firing.streams.published) < 50_000


async def test_a_change_that_the_wheel_did_not_hear_of() -> None:
    """Patched to later: not fired at the old time. Patched to sooner: fired then."""
    firing = firing_endless()
    later, sooner = due_row(10, number=1), due_row(50, number=2)
    firing.database.put(later, sooner)
    async with firing.running():
        await anyio.sleep(5)
        firing.database.put(
            later._replace(version=1, next_run_at=at(30)),
            sooner._replace(version=1, next_run_at=at(20)),
        )
        await published(firing, 2)
    first, second = firing.streams.published
    assert (first.id, second.id) == (sooner.id, later.id)
    assert 20e6 <= first.at_us - START_US < 20.05e6
    assert 30e6 <= second.at_us - START_US < 30.05e6


async def test_a_slot_lost_and_taken_again_is_read_from_its_beginning() -> None:
    firing = firing_endless()
    async with firing.running(Ticker, Prefetcher):
        await anyio.sleep(5)
        wheel = firing.context.vitals
        firing.database.put(due_row(100))  # as another owner was told
        firing.own(epoch=2)  # both in one message: lost and regained
        await wait_for(lambda: wheel.wheel_entries == 1, 1, "the row is in the wheel")


async def test_slots_of_others_are_not_read() -> None:
    firing = firing_endless()
    rows = [due_row(1) for _ in range(80)]
    async with firing.running():
        firing.own(SLOTS[:4])
        await anyio.sleep(0.5)
        firing.database.put(*rows)
        await published(firing, 40)
        await anyio.sleep(5)
        assert len(firing.streams.published) == 40
        firing.own(SLOTS)
        await published(firing, 80, within_s=1)


@pytest.mark.usefixtures("small_pages")
async def test_the_wheel_is_filled_to_its_cap_and_refilled() -> None:
    firing = firing_endless(wheel_cap=200)
    firing.database.put(*[due_row(5 + number / 50) for number in range(1500)])
    most = 0
    async with firing.running():
        while len(firing.streams.published) < 1500:
            await anyio.sleep(0.1)
            most = max(most, firing.context.vitals.wheel_entries)
    # The sweep may add what is due within its 1.5 s to a full wheel: 75 here.
    assert 200 <= most <= 200 + 40 + 75
    assert max(lag_us(firing, one) for one in firing.streams.published) < 100_000


async def test_a_backlog_without_workers_costs_little_and_hides_nothing() -> None:
    firing = Firing(Options(window_floor=10))
    backlog = [due_row(-3600 - number, queue="nobody") for number in range(6000)]
    firing.database.put(*backlog)
    async with firing.running():
        await published(firing, 10)
        await anyio.sleep(20)
        read = firing.database.rows_read
        for number in range(10):
            firing.database.put(due_row(seconds()))
            await published(firing, 11 + number, within_s=0.55)
            await anyio.sleep(0.43)
        spent_s = 10
        assert firing.database.rows_read - read < 5000 * spent_s


async def test_a_task_that_was_due_long_ago_is_found_behind_a_backlog() -> None:
    """Submitted with a time in the past, its wake lost: sweep by sweep, the backlog is searched."""
    firing = Firing(Options(window_floor=10))
    firing.database.put(*[due_row(-3600 - number, queue="nobody") for number in range(6000)])
    async with firing.running():
        await published(firing, 10)
        await anyio.sleep(20)
        for number in range(5):
            firing.database.put(due_row(-100))
            await published(firing, 11 + number, within_s=3)
            await anyio.sleep(0.3)


async def test_more_due_than_fits_is_brought_by_priority() -> None:
    """The best come first although they were due last and nothing but the store knew of them."""
    firing = Firing(Options(window_floor=500))
    worst = [due_row(-3600 + number / 100, priority=1) for number in range(FULL + 4000)]
    later = [due_row(5, priority=7) for _ in range(1000)]
    firing.database.put(*worst, *later)
    async with firing.running():
        await published(firing, 500)
        await anyio.sleep(8)
        assert len(firing.streams.published) == 500
        firing.database.put(*[due_row(7, priority=9) for _ in range(1000)])
        while len(firing.streams.published) < len(firing.database.rows):
            await anyio.sleep(0.02)
            firing.streams.consume("q", 400)
    order = [firing.database.rows[task_id].priority for task_id in firing.streams.ids]
    assert len(order) == len(set(firing.streams.ids)) == FULL + 6000
    assert firing.streams.most_undelivered["q"] <= 500
    assert order.index(7) < 1000
    # What the store alone knew (7 s: no wake) comes with the next refill at the latest.
    assert max(place for place, one in enumerate(order) if one > 1) < FULL + 2000
    low = [task_id for task_id, one in zip(firing.streams.ids, order, strict=True) if one == 1]
    places = {row.id: number for number, row in enumerate(worst)}
    jumps = [places[two] - places[one] for one, two in itertools.pairwise(low)]
    assert min(jumps) > -1000


async def test_a_refill_is_never_early_while_our_clock_is_ahead() -> None:
    firing = Firing()
    clock = firing.context.clock
    await anyio.sleep(1)
    for _ in range(8):  # PostgreSQL is 100 ms behind what we thought
        clock.observe(clock.monotonic(), clock.monotonic(), START_US + 900_000)
    assert clock.ahead_us > 90_000
    due, seems_due = due_row(0.8), due_row(0.95)
    firing.database.put(due, seems_due)
    one = Prefetcher(firing.context)
    one._take(Ownership(dict.fromkeys(SLOTS, 1), 1e9))
    await one._refills.bring("q", SLOTS)
    sent = await firing.context.boxes.dispatcher.receive_batch(10)
    assert [row.id for message in sent if isinstance(message, Due) for row in message.rows] == [
        due.id
    ]


async def test_a_restarted_prefetcher_learns_which_queues_are_saturated() -> None:
    firing = Firing(Options(window_floor=100))
    firing.database.put(*[due_row(-10 + number / 1e4) for number in range(FULL + 1000)])
    restarted: list[Prefetcher] = []

    class Dying(Prefetcher):
        async def run(self) -> None:
            restarted.append(self)
            with anyio.fail_after(5 if len(restarted) == 1 else None):
                await super().run()

    async with firing.running(Ticker, Dispatcher, Dying, may_crash=True):
        await wait_for(lambda: len(restarted) == 2, 20, "a restart")
        await wait_for(lambda: restarted[1]._refills.queues, 3, "the new one knows")
        while len(firing.streams.published) < FULL + 1000:
            await anyio.sleep(0.01)
            firing.streams.consume("q", 100)
    assert len(set(firing.streams.ids)) == FULL + 1000


async def test_the_store_being_away_is_waited_out() -> None:
    firing = firing_endless()
    away = StoreUnavailableError("away")
    firing.database.errors.extend([("sweep", away, False)] * 6)
    row = due_row(0.5)
    firing.database.put(row)
    async with firing.running():
        await published(firing, 1, within_s=15)
        assert firing.database.calls["sweep"] < 20
    assert firing.streams.ids == [row.id]


async def test_an_outage_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the next read is not due yet when the wait after a failure is over."""
    caplog.set_level("INFO", "duly.prefetcher")
    firing = firing_endless()
    async with firing.running():
        await anyio.sleep(5)
        firing.database.errors.extend([("sweep", StoreUnavailableError("away"), False)] * 6)
        await anyio.sleep(2)
        assert "reading due tasks" in firing.context.vitals.postgres.now
        await anyio.sleep(20)
        assert not firing.context.vitals.postgres.now
    assert [one.getMessage() for one in caplog.records if one.name == "duly.prefetcher"] == [
        "reading due tasks fails, trying on: away",
        "reading due tasks works again after 6 failures",
    ]


async def test_a_sweep_tells_whether_what_is_set_of_queues_has_changed() -> None:
    firing = firing_endless()
    controls = firing.context.controls
    controls.update([], 0.0)
    async with firing.running():
        await anyio.sleep(5)
        assert not controls.news.is_set()
        assert seconds() - controls.known_at < 0.6
        firing.database.controls_state = 1
        await wait_for(controls.news.is_set, 0.6, "a sweep has seen it")
        known_at = controls.known_at
        await anyio.sleep(5)
        assert controls.known_at == known_at


async def test_what_is_set_of_queues_is_in_the_first_store() -> None:
    firing = firing_endless()
    firing.context.home = firing.context.db
    firing.database.controls_state = 1
    async with firing.running():
        await anyio.sleep(5)
        assert firing.database.calls["sweep"] > 1
        assert not firing.context.controls.news.is_set()


async def test_at_rest_two_statements_a_second() -> None:
    firing = firing_endless()
    firing.database.put(*[due_row(3600 + number) for number in range(1000)])
    async with firing.running():
        await anyio.sleep(5)
        before = firing.database.calls.total()
        await anyio.sleep(100)
        assert firing.database.calls.total() - before <= 210
        assert firing.context.vitals.wheel_entries == 0
        assert firing.streams.looks == 0


async def test_refills_come_in_the_order_in_which_they_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a queue that is hungry again at once would keep the others, and all keys, from theirs."""
    refills = Refills(firing_endless().context)
    brought: list[str] = []

    async def bring(name: str, *_: Any) -> None:
        brought.append(name)

    monkeypatch.setattr(refills, "bring", bring)
    monkeypatch.setattr(refills, "_bring_key", bring)
    refills.note(Saturated(frozenset("bc"), frozenset("bc")))
    refills.note(SaturatedKeys(frozenset({("z", "k")}), frozenset({("z", "k")})))
    for _ in range(6):
        await refills.bring_one([1])
        refills.note(Saturated(frozenset("abc"), frozenset("ab")))
    assert brought == ["b", "c", "z", "a", "b", "a"]


class Stuck(Ticker):
    """A ticker that answers nothing."""

    async def run(self) -> None:
        await self.stopping.wait()


async def test_a_sweep_of_a_burst_is_one_statement() -> None:
    """Names are short: page by page it would go through all slots ten times."""
    firing = firing_endless()
    firing.database.put(*[due_row(1.7) for _ in range(5000)])
    async with firing.running():
        await wait_for(lambda: firing.context.vitals.wheel_entries == 5000, 2, "all in the wheel")
        before = firing.database.calls["sweep"]
        await anyio.sleep(0.5 * 3)
        assert firing.database.calls["sweep"] - before <= 3


async def test_what_a_sweep_finds_is_read_in_pages_and_goes_out_in_due_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its names come slot by slot."""
    sizes: list[int] = []
    real = sweeps.pending

    async def pending(db: Any, names: Any) -> Any:
        sizes.append(len(names))
        return await real(db, names)

    monkeypatch.setattr(sweeps, "pending", pending)
    monkeypatch.setattr(intake, "PAGE", 100)
    firing = firing_endless(window_floor=10_000)
    rows = [due_row(-3600 + number) for number in range(1_000)]
    firing.database.put(*rows)
    async with firing.running():
        await published(firing, 1_000)
    assert sum(sizes) >= 500
    assert max(sizes) <= 100
    places = {row.id: number for number, row in enumerate(rows)}
    order = [places[one] for one in firing.streams.ids]
    assert max(abs(place - number) for number, place in enumerate(order)) < 500


async def test_of_a_large_backlog_a_sweep_looks_at_two_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "_NAMES", 400)
    firing = firing_endless(window_floor=1)
    firing.streams.endless = False
    firing.database.put(*[due_row(-number / 1_000) for number in range(4_000)])
    async with firing.running():
        await wait_for(lambda: firing.context.vitals.ready_entries > 3_900, 60, "all in line")
        before = firing.database.calls["sweep_by_slot"]
        await anyio.sleep(10)
        assert 20 <= firing.database.calls["sweep_by_slot"] - before <= 2 * 20 + 2


async def test_a_stop_does_not_wait_for_a_wheel_that_does_not_answer() -> None:
    firing = firing_endless()
    firing.database.put(due_row(1))
    async with firing.running(Stuck, Prefetcher):
        box = firing.context.boxes.ticker
        await wait_for(lambda: box.depth > 1, 5, "a page was passed on")
        began = seconds()
    assert seconds() - began < 1


async def test_of_more_than_fits_each_fairness_key_is_brought() -> None:
    """Thousands of one, and ten of another that were due after all of these."""
    firing = Firing(Options(window_floor=100))
    crowd = [due_row(-200_000 + number, fair="crowd") for number in range(FULL + 15_000)]
    few = [due_row(-1, fair="few") for _ in range(10)]
    alone = [due_row(-1) for _ in range(3)]
    firing.database.put(*crowd, *few, *alone)
    ids = {row.id for row in (*few, *alone)}
    async with firing.running():
        await published(firing, 100)
        await anyio.sleep(5)
        while not ids <= set(firing.streams.ids):
            firing.streams.consume("q", 20)
            await anyio.sleep(0.05)
        assert len(firing.streams.published) < 300


# What no vacuum can remove


@pytest.fixture
def any_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few slots in a turn as it takes: the rig has eight."""
    monkeypatch.setattr(sweeping, "_TURNS", 256)


@pytest.mark.usefixtures("any_turns")
async def test_where_much_was_left_behind_what_falls_due_is_found_as_fast() -> None:
    """Looks at all slots from their beginning would take half a second, and so come every two."""
    firing = firing_endless()
    async with firing.running():
        firing.database.left_behind_s = 0.06
        await anyio.sleep(20.1)
        for number in range(20):
            began = seconds()
            firing.database.put(due_row(began))  # its wake was lost
            await published(firing, number + 1, within_s=0.5 + 0.1 + 0.05)
            await anyio.sleep(0.37)


@pytest.mark.usefixtures("any_turns")
async def test_where_much_was_left_behind_a_late_commit_is_found_in_its_turn() -> None:
    firing = firing_endless()
    async with firing.running():
        firing.database.left_behind_s = 0.06
        await anyio.sleep(20.1)
        late = [due_row(-100, number=number) for number in range(8)]
        firing.database.put(*late)
        await published(firing, 8, within_s=8 * 0.6)
        firing.database.left_behind_s = 0.0
        await anyio.sleep(3)
        firing.database.put(due_row(-100, number=8))
        await published(firing, 9, within_s=0.6)


@pytest.mark.usefixtures("any_turns")
async def test_slots_that_cannot_be_read_together_in_time_are_read_in_parts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Those of a node that starts: a statement about four of them takes longer than it may."""
    firing = firing_endless()
    caplog.set_level("INFO", "duly.prefetcher")
    firing.database.left_behind_s = TIMEOUT_S / 3.5
    firing.database.put(*[due_row(30, number=slot) for slot in range(8)])
    async with firing.running():
        await published(firing, 8, within_s=90)
    assert any("reading due tasks works again" in one.getMessage() for one in caplog.records)


async def test_where_much_was_left_behind_a_backlog_is_brought_from_where_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the same order, and now and then from the very beginning, for what is due since long."""
    since: list[Any] = []
    firing = Firing(Options(window_floor=1_000))
    real = firing.database._due_best

    def due_best(*args: Any) -> Any:
        since.append(args[-1])
        return real(*args)

    monkeypatch.setattr(firing.database, "_due_best", due_best)
    firing.database.left_behind_s = 0.1
    backlog = [due_row(-100_000 + number) for number in range(FULL + 25_000)]
    firing.database.put(*backlog)
    async with firing.running():
        while len(firing.streams.published) < len(backlog):
            firing.streams.consume("q", 100)
            await anyio.sleep(0.05)
    assert firing.streams.ids == [row.id for row in backlog]
    assert since[0] is None
    assert since[-1] is None  # that there is no more is told of all of it
    assert since.count(None) < len(since) / 2
