"""The rate of a queue, over three nodes: never exceeded, reached, in order, and without polling."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import anyio
import pytest
from firing_rig import due_row
from rate_rig import Cluster
from store_rig import NOW
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors.messages import Freed
from duly.storage import keys
from duly.storage.errors import StoreUnavailableError
from duly.storage.queues import Control


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


def rated(rate: float, burst: int | None = None) -> Control:
    return Control("q", rate=rate, burst=burst)


@pytest.mark.parametrize(
    ("rate", "burst"), [(200, None), (20, 1), (200, 400), (7, 1), (2_000, 200), (0.5, 3)]
)
async def test_it_is_reached_and_never_exceeded(rate: float, burst: int | None) -> None:
    cluster = Cluster()
    control = rated(rate, burst)
    assert control.pace is not None
    most = control.pace.burst
    cluster.control(control)
    span_s = max(10.0, 20 / rate)
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(round(rate * span_s * 1.2) + most)])
        await anyio.sleep(span_s)
        count = len(cluster.out)
    for seconds in (0.1, 1.0, 5.0):
        assert cluster.most_within(seconds) <= rate * (seconds + 0.001) + most
    assert 0.95 * rate * span_s <= count <= rate * span_s + most


async def test_what_is_due_of_other_queues_is_not_held_up() -> None:
    cluster = Cluster()
    cluster.control(rated(0.01))
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(100)])
        await cluster.send([due_row(-1, queue="r") for _ in range(50)])
        await anyio.sleep(5)
        assert len(cluster.out) == 1
        assert len(cluster.database.claimed) == 51


async def test_nobody_polls_while_all_wait_for_the_next_permit() -> None:
    cluster = Cluster()
    calls: list[str] = []
    run = cluster.redis.call

    async def counted(link: Any, what: str, *args: Any, **more: Any) -> Any:
        calls.append(what)
        return await run(link, what, *args, **more)

    cluster.redis.call = counted  # type: ignore[method-assign]
    cluster.control(rated(1 / 60))
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(100)])
        await anyio.sleep(10)
        calls.clear()
        await anyio.sleep(600)
        assert len(cluster.out) == 11
    # Each of the three asks for each permit; those that are refused come again a moment later.
    assert len(calls) < 10 * 20


@pytest.mark.parametrize("first", range(1_000, 1_008))  # whichever node has the best one
async def test_the_first_of_all_nodes_goes_first(first: int) -> None:
    cluster = Cluster()
    rows = [due_row(-1000 + 3 * number, number=first + number) for number in range(40)]
    random.Random(3).shuffle(rows)
    cluster.control(rated(2.0))
    async with cluster.running():
        await cluster.send(rows)
        await wait_for(lambda: len(cluster.out) == 40, 120, "all are out")
    order = [task_id for _, task_id in cluster.out]
    best_first = [row.id for row in sorted(rows, key=lambda row: row.next_run_at)]
    places = [best_first.index(task_id) for task_id in order]
    # The first one or two went before the nodes knew of each other: each the best of its node.
    assert max(places[:2]) < 10
    assert places[2:] == sorted(places[2:]), places
    assert cluster.most_within(1.0) <= 3


async def test_an_old_backlog_in_far_apart_times_is_as_quick_and_in_order() -> None:
    cluster = Cluster()
    rows = [due_row(-20_000 + 5 * number) for number in range(2_000)]
    cluster.control(rated(200))
    async with cluster.running():
        await cluster.send(rows)
        await anyio.sleep(10)
        assert len(cluster.out) > 0.95 * 2_000
        assert cluster.most_within(1.0) <= 220
    due = {row.id: row.next_run_at for row in rows}
    order = [task_id for _, task_id in cluster.out]
    ranked = {task_id: at for at, task_id in enumerate(sorted(order, key=due.__getitem__))}
    assert max(abs(ranked[task_id] - at) for at, task_id in enumerate(order)) < 100


async def test_nodes_with_equal_tasks_get_equal_shares() -> None:
    cluster = Cluster()
    cluster.control(rated(100))
    async with cluster.running():
        await cluster.send([due_row(-1 + number / 10_000) for number in range(4_000)])
        await anyio.sleep(20)
    shares = {name: cluster.share(name) / len(cluster.out) for name in cluster.nodes}
    # By slots: 3, 3 and 2 of 8.
    assert abs(shares["a"] - 3 / 8) < 0.1, shares
    assert abs(shares["c"] - 2 / 8) < 0.1, shares


async def test_a_node_that_is_gone_holds_the_others_up_for_a_moment_only() -> None:
    cluster = Cluster()
    first = [due_row(-100, number=8 * n) for n in range(1, 100)]  # all of them of slot 0, node a
    rest = [due_row(-10, number=8 * n + 4) for n in range(1, 100)]  # of node b
    cluster.control(rated(10))
    async with cluster.running("b"):
        async with cluster.running("a"):
            await cluster.send(first + rest)
            await anyio.sleep(2)
            assert cluster.share("b") <= 1
        gone_at = asyncio.get_running_loop().time()
        await wait_for(lambda: cluster.share("b") >= 10, 30, "the other node goes on")
        assert asyncio.get_running_loop().time() - gone_at < 2.0


async def test_permits_of_claims_that_lost_go_to_others() -> None:
    cluster = Cluster()
    rows = [due_row(-100, number=8 * n) for n in range(1, 101)]
    cluster.control(rated(10, 10))
    async with cluster.running():
        await cluster.send(rows)
        for row in rows[:50]:
            cluster.database.put(row._replace(version=7))  # changed meanwhile: these claims lose
        await anyio.sleep(3)
        # Without giving back, the lost claims would have used up five seconds of the rate.
        assert len(cluster.out) >= 30
        assert cluster.most_within(1.0) <= 20


@pytest.mark.parametrize(("rate", "burst"), [(10, 1), (100, None)])
async def test_a_key_without_room_takes_no_permits_from_others(
    rate: float, burst: int | None
) -> None:
    cluster = Cluster()
    urgent = [due_row(-100, key="k", priority=9) for _ in range(1000)]
    others = [due_row(-1, priority=0) for _ in range(round(rate * 25))]
    cluster.control(rated(rate, burst))
    async with cluster.running():
        await cluster.send(urgent + others)
        await anyio.sleep(20)
    assert cluster.most_within(1.0) <= rate * 1.001 + max(1, rate / 10)
    assert len(cluster.out) >= 0.75 * rate * 20


async def test_a_key_that_is_freed_again_and_again_holds_up_nobody() -> None:
    cluster = Cluster()
    urgent = [due_row(-100, key="k", priority=9) for _ in range(1000)]
    others = [due_row(-1, priority=0) for _ in range(1500)]
    cluster.control(rated(50))
    keyed = {row.id for row in urgent}
    ended = 0
    async with cluster.running():
        await cluster.send(urgent + others)
        for _ in range(200):
            await anyio.sleep(0.1)
            for _, task_id in cluster.out[ended:]:
                if task_id in keyed:
                    cluster.database.end(task_id)
            ended = len(cluster.out)
            for node in cluster.nodes.values():
                await node.context.boxes.dispatcher.send(Freed(frozenset({"k"})))
        count = len(cluster.out)
    assert sum(task_id in keyed for _, task_id in cluster.out) >= 100
    assert count >= 0.75 * 50 * 20


async def test_a_store_that_stands_still_does_not_lead_to_more_at_once_after_it() -> None:
    cluster = Cluster()
    cluster.control(rated(200))
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(3_000)])
        await anyio.sleep(2)
        cluster.database.latency_s = 2.0
        await anyio.sleep(1)
        cluster.database.latency_s = 0.002
        await anyio.sleep(10)
    assert cluster.most_within(1.0) <= 220.2
    assert cluster.most_within(0.1) <= 40.2
    assert len(cluster.out) > 1_800


async def test_a_claim_that_fails_uses_up_nothing() -> None:
    cluster = Cluster()
    cluster.control(rated(1.0, 5))
    away = StoreUnavailableError("away")
    cluster.database.errors.extend([("claim", away, False)] * 20)
    async with cluster.running("a"):
        await cluster.send([due_row(-1, number=8 * n) for n in range(1, 6)])
        await wait_for(lambda: len(cluster.out) == 5, 120, "all are out")
    assert cluster.most_within(1.0) == 5  # the whole burst was there


async def test_a_changed_rate_counts_at_once() -> None:
    cluster = Cluster()
    cluster.control(rated(0.001))
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(1_000)])
        await anyio.sleep(30)
        assert len(cluster.out) == 1
        cluster.control(rated(50))
        await anyio.sleep(4)
        assert 180 <= len(cluster.out) <= 206 + 5
        cluster.control(rated(1))
        await anyio.sleep(1)  # what is under way
        before = len(cluster.out)
        await anyio.sleep(10)
        assert 9 <= len(cluster.out) - before <= 11
        cluster.control()
        await anyio.sleep(2)
        assert len(cluster.out) == 1_000


@pytest.mark.parametrize(
    ("before", "after"), [((20, 400), (20, 5)), ((2_000, 200), (20, 5)), ((20, 5), (500, 50))]
)
async def test_a_change_counts_for_all_once_one_node_has_told_redis(
    before: tuple[float, int], after: tuple[float, int]
) -> None:
    cluster = Cluster()
    cluster.control(rated(*before)._replace(updated_at=NOW))
    async with cluster.running():
        await cluster.send([due_row(-1)])
        await anyio.sleep(60)
        changed = rated(*after)._replace(updated_at=NOW + timedelta(seconds=1))
        one = cluster.nodes["a"].context
        one.controls.update([changed], 0.0)
        assert changed.pace is not None
        await one.streams.permits.next_s("q", changed.pace)
        cluster.out.clear()
        await cluster.send([due_row(-1) for _ in range(10_000)])
        await anyio.sleep(5)
        count = len(cluster.out)
    rate, burst = after
    assert cluster.most_within(1.0) <= rate * 1.001 + burst
    assert 0.9 * rate * 5 <= count <= rate * 5.01 + burst


async def test_when_redis_has_lost_its_data_one_burst_more_may_go() -> None:
    cluster = Cluster()
    cluster.control(rated(20, 10))
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(2_000)])
        await anyio.sleep(5)
        before = len(cluster.out)
        for name in (keys.rate("q"), keys.waiting_for_rate("q")):
            cluster.redis.run([b"DEL", name.encode()])
        await anyio.sleep(5)
        assert 95 <= len(cluster.out) - before <= 20 * 5 + 2 * 10 + 1


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
async def test_a_step_of_redis_s_clock_stops_nothing(step_s: float) -> None:
    cluster = Cluster()
    cluster.control(rated(20, 5))
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(2_000)])
        await anyio.sleep(5)
        before = len(cluster.out)
        cluster.clock_s = step_s
        await anyio.sleep(5)
        assert 90 <= len(cluster.out) - before <= 20 * 5 + 2 * 5 + 1


async def test_a_queue_without_a_rate_asks_nothing() -> None:
    cluster = Cluster()
    async with cluster.running():
        await cluster.send([due_row(-1) for _ in range(100)])
        await wait_for(lambda: len(cluster.out) == 100, 60, "all are out")
    assert cluster.redis.run([b"EXISTS", keys.rate("q").encode()]) == 0


async def test_batches_that_wait_for_the_rate_hold_up_no_other_queue() -> None:
    """A slow store makes several of them wait, one behind the other."""
    cluster = Cluster()
    cluster.control(rated(2.0, 1))
    others: list[float] = []
    added = cluster.redis.on_added

    def note(key: bytes, words: Any) -> None:
        if key == keys.tasks("r").encode():
            others.append(asyncio.get_running_loop().time())
        added(key, words)

    cluster.redis.on_added = note
    async with cluster.running("a"):
        await cluster.send([due_row(-1, number=8 * number) for number in range(1, 400)])
        await anyio.sleep(3)
        cluster.database.latency_s = 2.0
        await anyio.sleep(2.4)
        cluster.database.latency_s = 0.002
        await anyio.sleep(3)  # what asked the slow store has its answer
        for number in range(40):
            began = asyncio.get_running_loop().time()
            await cluster.send([due_row(-1, queue="r", number=8 * (400 + number))])
            await wait_for(lambda: len(others) > number, 30, "it is out")  # noqa: B023
            assert others[-1] - began < 0.2
            await anyio.sleep(0.05)
