"""What nodes tell each other of the due tasks for which a queue has no room."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from waiting import wait_for

from duly.storage import keys
from duly.storage.redis import connect
from duly.storage.stream_facts import NOTHING_WAITS, Backlog
from duly.storage.streams import Streams

Q = "default"


@pytest.fixture
async def others(redis_url: str) -> AsyncIterator[list[Streams]]:
    """Two more nodes."""
    nodes = [Streams(redis_url, name, timeout_s=5.0) for name in ("node-b", "node-c")]
    yield nodes
    for one in nodes:
        await one.close()


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Any]:
    one: Redis = connect(redis_url, name="test")
    yield one
    await one.aclose()


@pytest.fixture(autouse=True)
def a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing said is over before the test ends."""
    monkeypatch.setattr(keys, "WAITING_TTL_MS", 60_000)


async def test_a_node_hears_what_the_others_said(streams: Streams, others: list[Streams]) -> None:
    assert await streams.backlog(Q, 900) == Backlog(0, 0, 0, None)
    assert await others[0].backlog(Q, 700) == Backlog(0, 0, 1, 900)
    assert await others[1].publish(Q, [], 800) == Backlog(0, 0, 2, 700)
    assert (await streams.backlog(Q, 600)).lowest == 700
    assert (await others[0].backlog(Q, 1000)).lowest == 600, "the newest word counts"


async def test_a_node_takes_back_what_it_said(streams: Streams, others: list[Streams]) -> None:
    await streams.backlog(Q, 900)
    await streams.backlog(Q)  # says nothing new
    assert (await others[0].backlog(Q)).lowest == 900
    await streams.publish(Q, [], NOTHING_WAITS)
    assert await others[0].backlog(Q) == Backlog(0, 0)


async def test_nothing_is_kept_where_nothing_waits(streams: Streams, client: Any) -> None:
    await streams.backlog(Q, NOTHING_WAITS)
    await streams.backlog(Q)
    assert await client.execute_command("EXISTS", keys.waiting(Q)) == 0
    await streams.backlog(Q, 5)
    assert await client.execute_command("PTTL", keys.waiting(Q)) > 0


async def test_the_word_of_a_node_that_is_gone_is_soon_forgotten(
    streams: Streams, others: list[Streams], client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await others[0].backlog(Q, 5)
    monkeypatch.setattr(keys, "WAITING_TTL_MS", 100)

    async def forgotten() -> bool:
        return await streams.backlog(Q, 7) == Backlog(0, 0)  # its own word keeps the key

    await wait_for(forgotten, 30, "it is forgotten")
    assert await client.execute_command("HKEYS", keys.waiting(Q)) == [b"node-a"]


@pytest.mark.parametrize("word", ["5 99999999999999", "5 1", "nonsense"])
async def test_a_word_of_another_time_or_no_word_holds_up_nobody(
    streams: Streams, client: Any, word: str
) -> None:
    """The clock of Redis was set back; or somebody wrote there by hand."""
    await client.execute_command("HSET", keys.waiting(Q), "node-z", word)
    assert await streams.backlog(Q) == Backlog(0, 0)
    assert await client.execute_command("EXISTS", keys.waiting(Q)) == 0


async def test_ranks_are_exact(streams: Streams, others: list[Streams]) -> None:
    low, high = 9 * 10**14 + 1_790_000_000_000, 9 * 10**14 + 1_790_000_000_001
    await others[0].backlog(Q, high)
    await others[1].backlog(Q, low)
    assert (await streams.backlog(Q)).lowest == low
    await others[1].backlog(Q, NOTHING_WAITS)
    assert (await streams.backlog(Q)).lowest == high


async def test_another_type_in_its_place_is_this_queues_trouble(
    streams: Streams, client: Any
) -> None:
    await client.execute_command("SET", keys.waiting(Q), "1")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await streams.backlog(Q, 5)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await streams.queues.check(Q)
    assert (await streams.backlog("other", 5)).lowest is None
