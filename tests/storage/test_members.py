"""Who is alive: registration, expiry and withdrawal on a real Redis."""

import random
from contextlib import AsyncExitStack

import pytest
from waiting import wait_for

from duly.storage import keys
from duly.storage.members import Members
from duly.storage.redis import call, connect

TTL_S = 2.0


async def test_a_newcomer_counts_from_its_second_beat(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        old, new = (Members(redis_url, name, 60, 5) for name in ("old", "new"))
        for one in (old, new):
            stack.push_async_callback(one.close)
        assert await old.beat(b"{}") == {"old"}  # nobody is established yet: all count
        assert await old.beat(b"{}") == {"old"}
        assert await new.beat(b"{}") == {"old"}
        assert await old.beat(b"{}") == {"old"}
        assert await new.beat(b"{}") == {"old", "new"}
        assert await old.beat(b"{}") == {"old", "new"}


async def test_a_silent_node_is_forgotten_after_its_ttl_and_not_before(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        alive, silent = (Members(redis_url, name, TTL_S, 5) for name in ("alive", "silent"))
        for one in (alive, silent):
            stack.push_async_callback(one.close)
            await one.beat(b"{}")
            await one.beat(b"{}")
        assert await alive.beat(b"{}") == {"alive", "silent"}  # late, but within its TTL

        async def forgotten() -> bool:
            return await alive.beat(b"{}") == {"alive"}

        await wait_for(forgotten, 60, "the silent node is forgotten")
        client = connect(redis_url, name="test")
        stack.push_async_callback(client.aclose)
        for key in (keys.NODES_BEATS, keys.NODES_INFO):
            assert await call(client, "HKEYS", key, timeout_s=5) == [b"alive"]


async def test_each_node_learns_what_the_others_say(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        one, two = (Members(redis_url, name, 60, 5) for name in ("one", "two"))
        for member in (one, two):
            stack.push_async_callback(member.close)
        assert await one.registered() == {}
        await one.beat(b"first")
        await two.beat(b"second")
        assert one.words == {"one": b"first"}
        assert two.words == {"one": b"first", "two": b"second"} == await one.registered()
        await one.beat(b"third")
        assert one.words == {"one": b"third", "two": b"second"}
        await two.leave()
        assert await one.registered() == {"one": b"third"}


async def test_a_node_that_redis_forgot_is_established_at_once(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        one, two = (Members(redis_url, name, 60, 5) for name in ("one", "two"))
        client = connect(redis_url, name="test")
        stack.push_async_callback(client.aclose)
        for member in (one, two):
            stack.push_async_callback(member.close)
            await member.beat(b"{}")
            await member.beat(b"{}")
        await call(client, "FLUSHALL", timeout_s=5)
        assert await one.beat(b"{}") == {"one"}
        assert await one.beat(b"{}") == {"one"}
        assert await two.beat(b"{}") == {"one", "two"}


async def test_a_node_that_leaves_is_gone_at_once(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        stays, leaves = (Members(redis_url, name, 60, 5) for name in ("stays", "leaves"))
        for one in (stays, leaves):
            stack.push_async_callback(one.close)
            await one.beat(b"{}")
            await one.beat(b"{}")
        await leaves.leave()
        assert await stays.beat(b"{}") == {"stays"}


@pytest.mark.parametrize("seed", range(8))
async def test_whoever_asks_and_however_late_some_are_all_hear_the_same(
    seed: int, redis_url: str
) -> None:
    """Joins, leaves and missed beats in any order: only joins and leaves change the answer."""
    dice = random.Random(seed)
    async with AsyncExitStack() as stack:
        live: dict[str, Members] = {}
        beats: dict[str, int] = {}
        for step in range(150):
            what = dice.choices(["join", "leave", "beat"], [1, 1, 12])[0]
            if what == "join" and len(live) < 6:
                live[f"node-{step}"] = member = Members(redis_url, f"node-{step}", 60, 5)
                stack.push_async_callback(member.close)
                beats[f"node-{step}"] = 0
            elif what == "leave" and len(live) > 1:
                name = dice.choice(sorted(live))
                await live.pop(name).leave()
                del beats[name]
            elif live:
                name = dice.choice(sorted(live))  # the others miss theirs
                beats[name] += 1
                known = {one for one, count in beats.items() if count}
                established = {one for one, count in beats.items() if count > 1}
                assert await live[name].beat(b"{}") == (established or known)


async def test_how_long_a_node_is_silent_is_known_when_it_is_gone(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        alive, silent = (Members(redis_url, name, TTL_S, 5) for name in ("alive", "silent"))
        for one in (alive, silent):
            stack.push_async_callback(one.close)
            await one.beat(b"{}")
        assert await alive.silent_s("nobody") is None

        async def forgotten() -> bool:
            await alive.beat(b"{}")
            return "silent" not in await alive.registered()

        await wait_for(forgotten, 60, "the silent node is forgotten")
        at_least_s = await alive.silent_s("silent")
        assert at_least_s is not None
        assert at_least_s >= TTL_S
        await silent.beat(b"{}")  # it was only paused
        again_s = await alive.silent_s("silent")
        assert again_s is not None
        assert again_s < at_least_s


async def test_a_node_remembers_for_a_while_whom_it_has_seen(redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        one, two = (Members(redis_url, name, 60, 5) for name in ("one", "two"))
        for member in (one, two):
            stack.push_async_callback(member.close)
        await two.beat(b"words")
        await one.beat(b"{}")
        assert one.vanished == {}
        await two.leave()
        await one.beat(b"{}")
        assert [(name, gone.words) for name, gone in one.vanished.items()] == [("two", b"words")]
        missed_at = one.vanished["two"].at
        await one.beat(b"{}")
        assert one.vanished["two"].at == missed_at
        await two.beat(b"back")
        await one.beat(b"{}")
        assert (one.vanished, one.words["two"]) == ({}, b"back")
        for number in range(105):
            await call(two._client, "HSET", keys.NODES_INFO, f"n{number:03}", "w", timeout_s=5)
            await call(two._client, "ZADD", keys.NODES_SEEN, "9e15", f"n{number:03}", timeout_s=5)
        await one.beat(b"{}")
        await call(two._client, "FLUSHDB", timeout_s=5)
        await one.beat(b"{}")
        assert len(one.vanished) == 100
