"""Leases on one and on three servers: exclusive, a majority, and no answer is no lease."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from odd_server import ANSWERS, odd_server
from private_valkey import PrivateValkey, several
from redis.asyncio import Redis
from settled import settle
from waiting import wait_for

from duly.storage import keys
from duly.storage.leases import LeaseServers
from duly.storage.redis import call, connect

SLOTS = [1, 2, 3]
ALL = frozenset(SLOTS)


@asynccontextmanager
async def holder(
    *urls: str, name: str = "a", ttl_s: float = 60.0, timeout_s: float = 10.0
) -> AsyncIterator[LeaseServers]:
    servers = LeaseServers(urls, name, ttl_s, timeout_s)
    try:
        yield servers
    finally:
        await servers.close()


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    one = connect(redis_url, name="test")
    yield one
    await one.aclose()


@pytest.fixture
async def settled_url(redis_url: str) -> str:
    """A server that has kept its data for long."""
    await settle(redis_url)
    return redis_url


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[PrivateValkey]]:
    """Three servers that know nothing of each other, and have just started."""
    with several(tmp_path, 3) as servers:
        yield servers


async def test_a_lease_has_one_holder(settled_url: str) -> None:
    async with holder(settled_url) as a, holder(settled_url, name="b") as b:
        assert (await a.take(SLOTS)).slots == ALL
        assert (await b.take([*SLOTS, 4])).slots == {4}
        assert (await b.renew(SLOTS)).slots == frozenset()
        await b.release(SLOTS)  # what is not its own stays
        assert (await a.renew(SLOTS)).slots == ALL
        await a.release([1])
        assert (await b.take(SLOTS)).slots == {1}


async def test_a_renewal_tells_apart_what_is_held_and_what_is_not(settled_url: str) -> None:
    async with holder(settled_url) as a, holder(settled_url, name="b") as b:
        await a.take(SLOTS)
        await a.release([2])
        assert (await a.renew(SLOTS)).slots == {1, 3}
        assert (await a.renew([3, 1])).slots == {1, 3}
        assert (await b.renew([3, 1])).slots == frozenset()
        assert (await a.renew([2])).slots == frozenset()


async def test_a_holder_that_forgot_takes_its_own_again(settled_url: str) -> None:
    async with holder(settled_url) as a:
        await a.take(SLOTS)
        assert (await a.take(SLOTS)).slots == ALL


async def test_many_holders_at_once_never_share_a_slot(settled_url: str) -> None:
    slots = list(range(64))
    async with (
        holder(settled_url, name="a") as a,
        holder(settled_url, name="b") as b,
        holder(settled_url, name="c") as c,
    ):
        taken = await asyncio.gather(*(one.take(slots) for one in (a, b, c)))
    assert sorted(slot for held in taken for slot in held.slots) == slots


async def test_validity_is_less_than_the_life_of_the_lease(settled_url: str) -> None:
    async with holder(settled_url, ttl_s=4.0) as a:
        began = time.monotonic()
        valid_s = (await a.take(SLOTS)).valid_s
        assert 3.9 - (time.monotonic() - began) < valid_s < 4.0


async def test_c17_a_holder_that_came_back_late_renews_nothing(
    settled_url: str, client: Redis
) -> None:
    async with holder(settled_url, ttl_s=0.1) as a, holder(settled_url, name="b") as b:
        await a.take(SLOTS)

        async def all_taken() -> bool:
            return (await b.take(SLOTS)).slots == ALL

        await wait_for(all_taken, 60, "the leases ran out, and b has them")
        assert (await a.renew(SLOTS)).slots == frozenset()
        assert await call(client, "GET", keys.lease(1), timeout_s=5) == b"b"
        assert await call(client, "PTTL", keys.lease(1), timeout_s=5) > 1000


async def test_c36_scripts_that_the_server_forgot(settled_url: str, client: Redis) -> None:
    async with holder(settled_url) as a:
        for _ in range(3):
            await call(client, "SCRIPT FLUSH", timeout_s=5)
            assert (await a.take(SLOTS)).slots == ALL
            await call(client, "SCRIPT FLUSH", timeout_s=5)
            assert (await a.renew(SLOTS)).slots == ALL
        await call(client, "SCRIPT FLUSH", timeout_s=5)
        await a.release(SLOTS)
        assert not await call(client, "EXISTS", *map(keys.lease, SLOTS), timeout_s=5)


async def test_c19_two_of_three_servers_are_enough(three: list[PrivateValkey]) -> None:
    urls = [server.url for server in three]
    await settle(*urls)
    async with holder(*urls) as a, holder(*urls, name="b") as b:
        assert (await a.take(SLOTS)).slots == ALL
        three[0].stop()
        held = await a.renew(SLOTS)
        assert (held.slots, held.servers_answered) == (ALL, 2)
        assert (await a.take([*SLOTS, 4])).slots == {*SLOTS, 4}
        assert (await b.take(SLOTS)).slots == frozenset()
        three[1].stop()
        held = await a.renew(SLOTS)
        assert (held.slots, held.servers_answered) == (frozenset(), 1)
        assert (await b.take([9])).slots == frozenset()
        three[1].start()  # empty: no majority knows these leases any more
        assert (await a.renew(SLOTS)).slots == frozenset()


async def test_c19_a_name_that_does_not_resolve(three: list[PrivateValkey]) -> None:
    urls = ["redis://lock-server.invalid:6379/0", three[1].url, three[2].url]
    await settle(*urls[1:])
    async with holder(*urls, timeout_s=2.0) as a:
        assert (await a.take(SLOTS)).slots == ALL
        assert (await a.renew(SLOTS)).servers_answered == 2


async def test_c19_a_server_that_swallows_packets_costs_its_timeout(
    three: list[PrivateValkey],
) -> None:
    urls = [server.url for server in three]
    await settle(*urls)
    async with holder(*urls, timeout_s=1.0) as a:
        await a.take(SLOTS)
        three[0].pause()
        began = time.monotonic()
        for _ in range(3):
            assert (await a.renew(SLOTS)).slots == ALL
        assert time.monotonic() - began < 3 * 1.0 + 10
        three[0].resume()

        async def all_answer() -> bool:
            return (await a.renew(SLOTS)).servers_answered == 3

        await wait_for(all_answer, 60, "the third answers again")


async def test_a_minority_is_given_back_at_once(three: list[PrivateValkey]) -> None:
    urls = [server.url for server in three]
    await settle(*urls)
    async with (
        holder(urls[0], name="x") as x,
        holder(urls[1], name="y") as y,
        holder(*urls) as a,
    ):
        await x.take([1])
        await y.take([1])
        assert (await a.take([1, 2])).slots == {2}
        async with holder(urls[2], name="z") as z:
            assert (await z.take([1])).slots == {1}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_c18_any_other_answer_is_no_lease(answer: bytes | None, settled_url: str) -> None:
    async with odd_server(answer) as url:
        async with holder(url, timeout_s=0.2) as a:
            held = await a.take(SLOTS)
            assert (held.slots, held.servers_answered) == (frozenset(), 0)
            assert (await a.renew(SLOTS)).slots == frozenset()
            await a.release(SLOTS)
        async with holder(url, settled_url, url, timeout_s=0.2) as a:
            assert (await a.take(SLOTS)).slots == frozenset()


async def test_c21_a_young_server_grants_nothing_that_somebody_else_may_hold(
    redis_url: str, client: Redis
) -> None:
    async with holder(redis_url) as a:
        held = await a.take(SLOTS, early=[2])
        assert held.slots == held.young == {2}
        assert held.servers_answered == 1
        # What was refused stands in nobody's way.
        assert not await call(client, "EXISTS", keys.lease(1), keys.lease(3), timeout_s=5)
        assert (await a.renew(SLOTS)).slots == {2}
        await settle(redis_url)
        held = await a.take(SLOTS)
        assert (held.slots, held.young) == (ALL, frozenset())


async def test_c21_a_server_counts_again_after_a_ttl(redis_url: str, client: Redis) -> None:
    await settle(redis_url)
    async with holder(redis_url, ttl_s=1.5) as a:
        assert (await a.take([1])).slots == {1}
        await call(client, "FLUSHALL", timeout_s=5)
        emptied = time.monotonic()
        assert (await a.renew([1])).slots == frozenset()

        async def granted() -> bool:
            return bool((await a.take([1])).slots)

        await wait_for(granted, 60, "the server counts")
        assert time.monotonic() - emptied >= 1.5


@pytest.mark.parametrize("said", ["", "nonsense", "0123456789abcdef 0", "{run} 99999999999999"])
async def test_c21_a_server_of_which_nothing_is_known_is_young(
    said: str, redis_url: str, client: Redis
) -> None:
    await settle(redis_url)
    known = (await call(client, "GET", keys.LEASE_SINCE, timeout_s=5)).decode()
    marker = said.format(run=known.split()[0])  # the last one: since later than its clock says now
    await call(client, "SET", keys.LEASE_SINCE, marker, timeout_s=5)
    async with holder(redis_url) as a:
        assert (await a.take(SLOTS)).slots == frozenset()
    run, since = (await call(client, "GET", keys.LEASE_SINCE, timeout_s=5)).split()
    assert run == known.split()[0].encode()
    assert 0 < int(since) < 99999999999999


async def test_c21_two_servers_restart_empty_while_a_lease_is_held(
    three: list[PrivateValkey],
) -> None:
    urls = [server.url for server in three]
    await settle(*urls)
    three[2].stop()
    async with (
        holder(*urls, ttl_s=2) as a,
        holder(*urls, name="b", ttl_s=2) as b,
    ):
        sent = time.monotonic()
        held = await a.take([3])
        assert held.slots == {3}
        three[0].stop()
        three[0].start()
        three[2].start()
        assert (await b.take([3])).slots == frozenset()

        async def granted() -> bool:
            return bool((await b.take([3])).slots)

        await wait_for(granted, 60, "b has it")
        assert time.monotonic() - sent > held.valid_s


async def test_who_holds_a_lease_is_what_a_majority_says(three: list[PrivateValkey]) -> None:
    urls = [server.url for server in three]
    async with holder(*urls) as a, holder(urls[0], name="b") as b:
        assert await a.holders(SLOTS) == {}
        await b.take([1], early=[1])  # on one of three servers
        await a.take([2, 3], early=[2, 3])
        assert await a.holders(SLOTS) == {2: "a", 3: "a"}
        three[0].stop()
        assert await a.holders(SLOTS) == {2: "a", 3: "a"}
        three[1].stop()
        assert await a.holders(SLOTS) is None
