"""GET /v1/stats and /v1/stats/series, of one node and of a cluster."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from waiting import wait_for

from duly.wheel.durations import from_us, parse_time


async def stats(node: RunningNode) -> Any:
    answer = await node.call("GET", "/v1/stats")
    assert answer.status == 200
    return answer.body


async def stats_when(node: RunningNode, true: Callable[[Any], bool], what: str) -> Any:
    """The statistics once they are as they should be."""

    async def look() -> Any:
        found = await stats(node)
        return found if true(found) else None

    return await wait_for(look, 90, what)


def completed(count: int) -> Callable[[Any], bool]:
    return lambda found: found["windows"]["1h"]["completed"] == count


async def run(node: RunningNode, hand: HandWorker, count: int, task_type: str = "t") -> None:
    for _ in range(count):
        await node.client.submit(task_type)
    for _ in range(count):
        taken = await hand.take()
        now_ms = node.context.clock.now_us() / 1000
        await hand.report(taken, started=now_ms, finished=now_ms + 250)


async def test_what_was_done(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as hand:
        await hand.live()
        await run(node, hand, 3)
        await node.client.submit("bad", max_retries=0)
        await hand.report(await hand.take(), "failed")
        await node.client.submit("later", delay=3600)

        def done(found: Any) -> bool:
            return completed(3)(found) and found["windows"]["1h"]["failed"] == 1

        found = await stats_when(node, done, "all ends are counted")
    assert found["scope"] == "cluster"
    for name in ("5m", "1h"):
        window = found["windows"][name]
        assert (window["started"], window["retried"], window["exhausted"]) == (4, 0, 1)
        assert (window["lost"], window["timed_out"], window["skipped"]) == (0, 0, 0)
        assert window["failure_rate"] == 0.25
        assert list(window["stages"]) == ["ticked", "claimed", "published", "started"]
        assert window["lag"] == window["stages"]["published"]
        assert 0 <= window["lag"]["p50"] <= window["lag"]["p95"] <= window["lag"]["p99"]
        durations = window["durations"]["t"]
        assert durations["count"] == 3
        assert abs(durations["p50"] - 0.25) < 0.01

    ends = {"pending": 1, "running": 0, "completed": 3, "failed": 1, "cancelled": 0}

    def counted(one: Any) -> bool:
        return bool(one["counts"]["by_status"] == ends)  # these are some seconds old

    counts = (await stats_when(node, counted, "they are counted"))["counts"]
    assert counts["exact"]
    assert counts["by_queue"] == {"default": {"pending": 1, "due": 0, "paused": 0, "running": 0}}


async def test_the_series_has_a_point_for_each_minute(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as hand:
        await hand.live()
        await run(node, hand, 2)
        await stats_when(node, completed(2), "both are counted")
    answer = await node.call("GET", "/v1/stats/series")
    body = answer.body
    assert (body["step_s"], body["scope"], len(body["points"])) == (60, "cluster", 60)
    times = [parse_time(point["at"]) for point in body["points"]]
    assert {(later - before).total_seconds() for before, later in itertools.pairwise(times)} == {60}
    assert abs((from_us(node.context.clock.now_us()) - times[-1]).total_seconds()) < 120
    assert sum(point["completed"] for point in body["points"]) == 2
    busy = next(point for point in body["points"] if point["started"])
    assert busy["lag_p99"] >= busy["lag_p50"] >= 0
    assert body["points"][0]["lag_p50"] is None
    few = await node.call("GET", "/v1/stats/series?minutes=5")
    assert len(few.body["points"]) == 5


async def test_wrong_questions(node: RunningNode) -> None:
    for minutes in ("0", "61", "x", "-1", "", "1e1", "0" * 5000 + "1", "0000000019999"):
        assert (await node.call("GET", f"/v1/stats/series?minutes={minutes}")).fields == ["minutes"]
    assert (await node.call("GET", "/v1/stats?minutes=5")).fields == ["minutes"]


async def test_any_node_tells_of_all_also_of_one_that_is_gone(
    fresh_database: str, redis_url: str
) -> None:
    async with running_node(fresh_database, redis_url) as first:
        async with (
            running_node(fresh_database, redis_url, owns_slots=False) as second,
            HandWorker(redis_url) as hand,
        ):
            await hand.live()
            await run(first, hand, 20)
            for node in (first, second):
                found = await stats_when(node, completed(20), "each node tells of both")
                assert found["windows"]["1h"]["durations"]["t"]["count"] == 20
        found = await stats_when(first, completed(20), "the one that is left tells of both")
        assert found["windows"]["1h"]["started"] == 20


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path)
    server.start()
    yield server
    server.stop()


async def test_without_redis_the_node_tells_of_itself(
    fresh_database: str, valkey: PrivateValkey
) -> None:
    async with running_node(fresh_database, valkey.url) as node:
        async with HandWorker(valkey.url) as hand:
            await hand.live()
            await run(node, hand, 2)
            await stats_when(node, completed(2), "both are counted")
        valkey.stop()
        found = await stats_when(node, lambda one: one["scope"] == "node", "Redis is missed")
        assert found["windows"]["1h"]["completed"] == 2
        series = await node.call("GET", "/v1/stats/series")
        assert series.body["scope"] == "node"
        assert sum(point["completed"] for point in series.body["points"]) == 2
