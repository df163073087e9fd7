"""The actor that writes a node's minutes, in virtual time; and what other nodes make of them."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import anyio
import pytest
from firing_rig import Firing, due_row, now_us
from statistics_rig import FakeStatistics, node
from virtual_time import VIRTUAL_TIME

from duly.actors.meters.cluster import ClusterMeters
from duly.actors.meters.meters import Measured
from duly.actors.meters.minutes import KEPT, MINUTE_US, Figures, decode
from duly.actors.meters.statistics import StatisticsActor

pytestmark = pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME])


def work(firing: Firing, count: int, lag_us: int = 1000) -> None:
    at = now_us()
    rows = [due_row(asyncio.get_running_loop().time()) for _ in range(count)]
    firing.context.meters.published(rows, at, at + lag_us)
    firing.context.meters.ended([Measured("t", "completed", 5000, 2000)] * count)


async def test_figures_are_written_within_seconds_and_by_their_minute() -> None:
    kept = FakeStatistics()
    firing = node(kept, "a")
    async with firing.running(StatisticsActor):
        first = now_us() // MINUTE_US
        work(firing, 3)
        await anyio.sleep(6)
        assert decode(kept.kept[first]["a"]).counts["completed"] == 3
        await anyio.sleep(60)
        work(firing, 2)
        await anyio.sleep(6)
    second = now_us() // MINUTE_US
    assert decode(kept.kept[first]["a"]).counts["completed"] == 3
    assert decode(kept.kept[second]["a"]).counts["completed"] == 2


async def test_due_tasks_are_counted_less_often_where_that_takes_long() -> None:
    firing = node(FakeStatistics(), "a")
    real, takes_s = firing.database.fetch, [0.0]

    async def fetch(name: str, *args: Any) -> Any:
        if name == "count_due":
            await anyio.sleep(takes_s[0])
        return await real(name, *args)

    firing.database.fetch = fetch  # type: ignore[method-assign]
    firing.context.vitals.slots = frozenset({1, 2})
    counts = []
    async with firing.running(StatisticsActor):
        for takes_s[0] in (0.01, 3.0):
            await anyio.sleep(100)
            before = firing.database.calls["count_due"]
            await anyio.sleep(600)
            counts.append(firing.database.calls["count_due"] - before)
    often, seldom = counts
    assert often >= 59
    assert seldom <= often / 4


async def test_an_ordered_stop_writes_the_last_of_them() -> None:
    kept = FakeStatistics()
    firing = node(kept, "a")
    async with firing.running(StatisticsActor):
        await anyio.sleep(6)
        work(firing, 4)
    found = decode(kept.kept[now_us() // MINUTE_US]["a"])
    assert found.counts["completed"] == 4


async def test_what_redis_missed_is_written_when_it_is_back() -> None:
    kept = FakeStatistics()
    firing = node(kept, "a")
    kept.away = True
    async with firing.running(StatisticsActor):
        first = now_us() // MINUTE_US
        work(firing, 1)
        await anyio.sleep(180)
        assert kept.kept == {}
        kept.away = False
        await anyio.sleep(6)
        assert decode(kept.kept[first]["a"]).counts["completed"] == 1
        assert len(kept.kept) >= 3


async def test_every_node_tells_of_all_also_of_those_that_are_gone() -> None:
    kept = FakeStatistics()
    dead, first, second = (node(kept, name) for name in ("dead", "a", "b"))
    async with dead.running(StatisticsActor):
        work(dead, 90, lag_us=1000)
        await anyio.sleep(6)
    await anyio.sleep(120)
    async with first.running(StatisticsActor), second.running(StatisticsActor):
        work(first, 9, lag_us=1000)
        work(second, 1, lag_us=5_000_000)
        await anyio.sleep(6)
        for one in (first, second):
            hour = await ClusterMeters(one.context).hour()
            assert hour.whole
            total = sum(minute.counts["started"] for minute in hour.minutes.values())
            assert total == 100
            lag = next(iter(hour.minutes.values())).lag("published")
            for minute in hour.minutes.values():
                lag.merge(minute.lag("published"))
            assert lag.quantile_us(0.99) == pytest.approx(1000, rel=0.04)
            assert lag.quantile_us(1.0) == pytest.approx(5_000_000, rel=0.04)


async def test_the_sum_of_the_hour_is_that_of_its_minutes_as_time_goes_on() -> None:
    kept = FakeStatistics()
    first, second = node(kept, "a"), node(kept, "b")
    chance = random.Random(5)
    async with first.running(StatisticsActor), second.running(StatisticsActor):
        cluster = ClusterMeters(first.context)
        for _ in range(60):
            work(chance.choice((first, second)), chance.randrange(50), chance.randrange(1, 10**6))
            kept.away = chance.random() < 0.2
            await anyio.sleep(chance.uniform(1, 300))
            hour = await cluster.hour()
            whole = Figures()
            for minute in hour.minutes.values():
                whole.merge(minute)
            assert {n: c for n, c in hour.sum.counts.items() if c} == whole.counts
            assert hour.sum.due == whole.due
            for mine, its in ((hour.sum.lags, whole.lags), (hour.sum.durations, whole.durations)):
                shown = {name: dict(one.buckets) for name, one in mine.items() if one.buckets}
                assert shown == {
                    name: dict(one.buckets) for name, one in its.items() if one.buckets
                }
            assert len(hour.minutes) == KEPT


async def test_without_redis_a_node_tells_of_itself_and_says_so() -> None:
    kept = FakeStatistics()
    first, second = node(kept, "a"), node(kept, "b")
    async with first.running(StatisticsActor), second.running(StatisticsActor):
        work(first, 2)
        work(second, 3)
        await anyio.sleep(6)
        cluster = ClusterMeters(first.context)

        async def started() -> tuple[int, bool]:
            hour = await cluster.hour()
            return sum(one.counts["started"] for one in hour.minutes.values()), hour.whole

        assert await started() == (5, True)
        kept.away = True
        await anyio.sleep(3)
        assert await started() == (2, False)
        kept.away = False
        await anyio.sleep(3)  # so long it is not asked again
        assert await started() == (5, True)


async def test_a_look_that_was_broken_off_is_made_again() -> None:
    kept = FakeStatistics()
    first, second = node(kept, "a"), node(kept, "b")
    async with first.running(StatisticsActor), second.running(StatisticsActor):
        for _ in range(5):
            work(second, 10)
            await anyio.sleep(60)
        cluster = ClusterMeters(first.context)
        broken_off = 0
        for steps in range(1, 40):
            kept.has_read.clear()
            looking = asyncio.ensure_future(cluster.hour())
            await kept.has_read.wait()
            for _ in range(steps):
                await asyncio.sleep(0)
            broken_off += looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
            hour = await cluster.hour()
            assert sum(one.counts["started"] for one in hour.minutes.values()) == 50
            cluster = ClusterMeters(first.context)
        assert broken_off


async def test_old_minutes_are_read_again_only_now_and_then() -> None:
    kept = FakeStatistics()
    firing = node(kept, "a")
    cluster = ClusterMeters(firing.context)
    for _ in range(50):
        await cluster.hour()
        await anyio.sleep(1)
    assert kept.reads[0] == 61
    assert set(kept.reads[1:]) == {4}
    assert len(kept.reads) <= 25
    await anyio.sleep(60)
    await cluster.hour()
    assert kept.reads[-1] == 61
