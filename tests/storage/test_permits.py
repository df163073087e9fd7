"""Permits and the gate before the stream, on a real server: by rates so low that no time passes.

Or so high that it passes at once.
"""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import redis.asyncio
from store_rig import NOW

from duly.storage import keys
from duly.storage.claims import Claimed
from duly.storage.permits import Rate
from duly.storage.streams import Streams

Q = "q"
SLOW = Rate(1e-6, 5)  # of which nothing comes back during a test
SECOND_MS = 1_000


@pytest.fixture
async def other(redis_url: str) -> AsyncIterator[Streams]:
    """Another node's access."""
    one = Streams(redis_url, "node-b", timeout_s=5.0)
    yield one
    await one.close()


def task() -> Claimed:
    return Claimed(uuid4(), 1, "t", Q, NOW, 0, 5.0, "retry", "1")


async def test_nodes_share_one_burst(streams: Streams, other: Streams) -> None:
    assert await streams.permits.ask(Q, SLOW, [1, 2, 3]) == (3, 0.0)
    count, wait_s = await other.permits.ask(Q, SLOW, [1, 2, 3])
    assert count == 2
    assert wait_s == pytest.approx(1e6, rel=0.01)
    assert (await streams.permits.ask(Q, SLOW, [1])).permits == 0
    assert await streams.permits.next_s(Q, SLOW) == pytest.approx(1e6, rel=0.01)


async def test_what_is_given_back_is_there_for_all(streams: Streams, other: Streams) -> None:
    assert (await streams.permits.ask(Q, SLOW, range(9))).permits == 5
    await streams.permits.give_back(Q, SLOW, 2)
    assert (await other.permits.ask(Q, SLOW, [0])).permits == 1
    await streams.permits.give_back(Q, SLOW, 99)  # never more than there are
    assert (await other.permits.ask(Q, SLOW, range(9))).permits == 5


async def test_looking_uses_up_nothing(streams: Streams) -> None:
    for _ in range(20):
        assert await streams.permits.next_s(Q, SLOW) == 0.0
    assert (await streams.permits.ask(Q, SLOW, range(9))).permits == 5


async def test_what_waits_with_another_node_goes_before_what_ranks_behind_it(
    streams: Streams, other: Streams
) -> None:
    await streams.permits.ask(Q, SLOW, range(5))
    await streams.permits.ask(Q, SLOW, [1_000])  # it waits, and may be a second ahead
    await other.permits.give_back(Q, SLOW, 5)
    count, wait_s = await other.permits.ask(Q, SLOW, [1_500, 2_000, 2_001, 2_002])
    assert count == 2
    assert 0 < wait_s < 1
    assert (await streams.permits.ask(Q, SLOW, [1_000, 1_001])).permits == 2
    assert (await other.permits.ask(Q, SLOW, [2_001])).permits == 1


async def test_a_node_whose_tasks_had_no_turn_holds_up_nobody(
    streams: Streams, other: Streams
) -> None:
    await other.permits.ask(Q, SLOW, range(3))
    assert (await streams.permits.ask(Q, SLOW, [7, 8, 9])).permits == 2  # one waits
    await streams.permits.give_back(Q, SLOW, 2)
    assert (await other.permits.ask(Q, SLOW, [9_000, 9_001])).permits == 2


async def test_a_node_that_may_not_say_holds_up_nobody(streams: Streams, other: Streams) -> None:
    await streams.permits.ask(Q, SLOW, range(5))
    await streams.permits.ask(Q, SLOW, [1_000], may_say=False)
    await streams.permits.give_back(Q, SLOW, 5)
    assert (await other.permits.ask(Q, SLOW, [9_000])).permits == 1


@pytest.mark.parametrize("said", ["{now} {old}", "{future} {more}"])
async def test_a_word_that_is_over_or_of_before_a_clock_step_counts_no_more(
    streams: Streams, redis_url: str, said: str
) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        seconds, us = await client.time()
        now = seconds * 1_000_000 + us
        times = {"now": now - 2, "old": now - 1, "future": now + 10**10, "more": now + 10**11}
        word = "7 " + said.format(**times)
        await client.hset(keys.waiting_for_rate(Q), "gone", word)
        assert (await streams.permits.ask(Q, SLOW, [10**15])).permits == 1
        assert not await client.exists(keys.waiting_for_rate(Q))


async def test_the_gate_holds_back_the_last_tasks_until_it_is_time(streams: Streams) -> None:
    some = [task() for _ in range(8)]
    backlog = await streams.publish(Q, some, rate=SLOW)
    assert (backlog.entries, backlog.held) == (5, 3)
    assert backlog.wait_s > 1_000
    # Those that are in the stream already need no place in it again.
    again = await streams.publish(Q, some[:5], rate=SLOW)
    assert (again.entries, again.held) == (5, 0)
    free = await streams.publish(Q, some[5:])
    assert (free.entries, free.held, free.wait_s) == (8, 0, 0.0)


async def test_a_smaller_burst_waits_for_no_more_than_one_interval(streams: Streams) -> None:
    large, small = Rate(1e-6, 1_000), Rate(1.0, 1)
    await streams.permits.ask(Q, large, [1] * 1_000)
    await streams.publish(Q, [task() for _ in range(50)], rate=Rate(1e-6, 50))
    assert await streams.permits.next_s(Q, small) <= 1.03
    assert (await streams.publish(Q, [task()], rate=small)).wait_s <= 1.0


async def test_the_newest_setting_counts_for_a_node_that_has_not_heard_of_it(
    streams: Streams, other: Streams
) -> None:
    old, new = Rate(1e-6, 50, revision=1), Rate(1e-6, 5, revision=2)
    assert (await other.permits.ask(Q, old, [1])).permits == 1
    assert await streams.permits.next_s(Q, new) == 0.0
    assert (await other.permits.ask(Q, old, range(9))).permits == 4
    backlog = await other.publish(Q, [task() for _ in range(9)], rate=old)
    assert (backlog.entries, backlog.held) == (5, 4)


@pytest.mark.parametrize("seen_s", [-11, 11])
async def test_a_setting_that_nobody_knows_any_more_does_not_stay(
    streams: Streams, redis_url: str, seen_s: int
) -> None:
    await streams.permits.ask(Q, Rate(1e-6, 5, revision=2), [1])  # PostgreSQL has lost it
    assert (await streams.permits.ask(Q, Rate(1e-6, 50, revision=1), range(9))).permits == 4
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        await client.hincrby(keys.rate(Q), "revised_at", seen_s * 1_000_000)
    assert (await streams.permits.ask(Q, Rate(1e-6, 50, revision=1), range(9))).permits == 9


async def test_nothing_is_kept_of_a_rate_that_is_not_used_up(
    streams: Streams, redis_url: str
) -> None:
    fast = Rate(1e5, 10)
    await streams.permits.ask(Q, fast, range(5))
    await streams.publish(Q, [task()], rate=fast)
    await streams.permits.ask("slow", SLOW, range(9))
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        left_ms = await client.pttl(keys.rate(Q))
        assert left_ms == -2 or 0 < left_ms <= 2 * SECOND_MS  # -2: gone already
        assert await client.pttl(keys.rate("slow")) == pytest.approx(5e9, rel=0.01)
        assert 0 < await client.pttl(keys.waiting_for_rate("slow")) <= 1.01e9
        await streams.publish("slow", [task()], rate=SLOW)
        assert await client.pttl(keys.rate("slow")) == pytest.approx(5e9, rel=0.01)
