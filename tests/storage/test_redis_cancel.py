"""C31 and C36 at full size: calls cut short by the thousand, and scripts forgotten under load."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from slow_proxy import slow_proxy
from store_rig import NOW

from duly.storage import keys
from duly.storage.claims import Claimed
from duly.storage.redis import Scripts, call, connect
from duly.storage.streams import Streams

DELAY_S = 0.1
ROUNDS = 20
AT_ONCE = 50


@pytest.fixture
async def slow_url(redis_url: str) -> AsyncIterator[str]:
    async with slow_proxy(redis_url, DELAY_S) as url:
        yield url


def task() -> Claimed:
    return Claimed(uuid4(), 1, "t", "q", NOW, 0, 300.0, "retry", "null")


async def hold(scripts: Scripts, leases: list[str], how: str) -> int:
    """Renew or take leases; one answer for all."""
    args: list[str | int] = ["me", 60_000, *[how] * len(leases)]
    answer: int = await scripts.run("lease_hold", ["since", *leases], args)
    return answer


async def test_c31_a_thousand_calls_cut_short_leave_no_wrong_answer(slow_url: str) -> None:
    """By cancellation and by timeout: a lease renewal, a read, and whatever else a node asks."""
    chance = random.Random(31)
    client: Redis = connect(slow_url, name="test")
    scripts, streams = Scripts(client, 5.0), Streams(slow_url, "node-a", 5.0)
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: hold(scripts, ["a", "b"], "renew"),
        lambda: call(client, "INCR", "other", timeout_s=5),
        lambda: streams.reports.read(["q"], block_ms=20),
        lambda: streams.crews.of("q"),
        lambda: streams.locate("q", [(UUID(int=1), 1)]),
        lambda: streams.publish("q", [task()]),
        streams.queues.names,
    ]

    async def cut_short(number: int) -> bool:
        limit_s = chance.random() * 2 * DELAY_S
        work = calls[number % len(calls)]()
        if number % 2:
            try:
                async with asyncio.timeout(limit_s):
                    await work
            except TimeoutError:
                return True
            return False
        running = asyncio.create_task(work)
        await asyncio.sleep(limit_s)
        running.cancel()
        await asyncio.wait([running])
        return running.cancelled()

    async def right(number: int) -> None:
        """Each with an answer that no other call has."""
        await call(client, "SET", f"k{number}", f"v{number}", timeout_s=5)
        assert await call(client, "GET", f"k{number}", timeout_s=5) == b"v%d" % number
        assert await call(client, "INCRBY", f"n{number}", number, timeout_s=5) == number
        leases = [f"lease{number}-{n}" for n in range(number % 5 + 1)]
        assert await hold(scripts, leases, "renew") == 0  # of all
        assert await streams.queues.names() == {"q"}

    try:
        await streams.queues.announce("q")
        cut = 0
        for number in range(ROUNDS):
            batch = range(number * AT_ONCE, (number + 1) * AT_ONCE)
            cut += sum(await asyncio.gather(*map(cut_short, batch)))
            if number % 4 == 3:
                await asyncio.gather(*(right(n) for n in list(batch)[:5]))
        assert cut > ROUNDS * AT_ONCE / 4
    finally:
        await streams.close()
        await client.aclose()


async def test_c36_scripts_forgotten_again_and_again_run_once_each(redis_url: str) -> None:
    """Publications, lease renewals and clean-ups at once, while the scripts are flushed all the time."""
    client: Redis = connect(redis_url, name="test")
    scripts, streams = Scripts(client, 5.0), Streams(redis_url, "node-a", 5.0)
    flushing = True

    async def flush() -> int:
        count = 0
        while flushing:
            await call(client, "SCRIPT", "FLUSH", timeout_s=5)
            count += 1
        return count

    async def fire() -> None:
        for _ in range(100):
            tasks = [task() for _ in range(3)]
            await streams.publish("q", tasks)
            items = [(b"", str(one.id), str(one.token)) for one in tasks[:2]]
            await streams.settle("q", items)

    async def renew() -> None:
        assert await hold(scripts, ["a", "b"], "early")
        for _ in range(300):
            assert await hold(scripts, ["a", "b"], "renew")

    try:
        flusher = asyncio.create_task(flush())
        await asyncio.gather(fire(), fire(), renew())
        flushing = False
        assert await flusher > 10
        assert await call(client, "XLEN", keys.tasks("q"), timeout_s=5) == 200
        assert await call(client, "HLEN", keys.inflight("q"), timeout_s=5) == 200
    finally:
        flushing = False
        await streams.close()
        await client.aclose()
