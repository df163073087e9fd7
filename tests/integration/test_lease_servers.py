"""Nodes whose lease servers are cut off, go down, come back empty: cases C17, C19 and C21."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from claim_watch import claims_seen, watch_claims
from held_proxy import held_proxy
from node_rig import RunningNode, running_node
from odd_server import ANSWERS, odd_server
from private_valkey import PrivateValkey, several
from settled import settle
from store_rig import query
from waiting import wait_for

from duly.storage import keys, slots
from duly.storage.redis import call, connect
from duly.storage.slots import SLOTS

_LONG: dict[str, Any] = {"lease_ttl_s": 600.0}  # whoever has to wait for a TTL fails the test
_ROOMY: dict[str, Any] = {"window_floor": 1000}  # there are no workers


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[PrivateValkey]]:
    """Three lease servers that know nothing of each other, and have just started."""
    with several(tmp_path, 3) as servers:
        yield servers


def urls(servers: list[PrivateValkey]) -> tuple[str, ...]:
    return tuple(server.url for server in servers)


async def owns(node: RunningNode, count: int) -> None:
    await wait_for(lambda: node.context.vitals.owned_slots == count, 90, f"it owns {count} slots")


async def owners(node: RunningNode) -> dict[int, str | None]:
    states = await slots.states(node.context.db, range(SLOTS))
    return {slot: state.owner for slot, state in states.items()}


async def epochs(node: RunningNode) -> set[int]:
    return {state.epoch for state in (await slots.states(node.context.db, range(SLOTS))).values()}


async def flush(redis_url: str) -> None:
    client = connect(redis_url, name="test")
    try:
        await call(client, "FLUSHDB", timeout_s=5)
    finally:
        await client.aclose()


async def slots_part(node: RunningNode) -> tuple[int, bool]:
    """What /readyz answers, and whether it is content with the slots."""
    answer = await node.call("GET", "/readyz")
    return answer.status, answer.body["parts"]["slots"]["ok"]


async def submit_spread(node: RunningNode, count: int, over_s: float) -> None:
    """Submit tasks that fall due evenly over that time."""
    now = datetime.now(UTC)
    due = [now + timedelta(seconds=over_s * n / count) for n in range(count)]
    await node.client.submit_batch([{"type": "t", "run_at": at.isoformat()} for at in due])


async def all_claimed_once_by_owners(node: RunningNode, count: int) -> set[str]:
    """Wait until all are claimed; each was once, by its slot's owner. Answers by whom."""
    ask = partial(query, node.context.db)

    async def all_claimed() -> bool:
        return (await claims_seen(ask)).tasks >= count

    await wait_for(all_claimed, 60, "all are claimed")
    claims = await claims_seen(ask)
    assert claims.times == count
    assert claims.wrong == []
    return claims.owners


async def test_c17_a_node_that_was_cut_off_renews_nothing_afterwards(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        held_proxy(redis_url) as (held_url, proxy),
        running_node(fresh_database, redis_url, **_ROOMY) as b,
        running_node(fresh_database, held_url, owns_slots=False, **_ROOMY) as a,
    ):
        await owns(a, SLOTS // 2)
        await watch_claims(partial(query, b.context.db))
        before = await epochs(b)
        await submit_spread(b, 300, over_s=6)
        proxy.hold()
        await owns(a, 0)  # by its own clock: nobody has told it
        await owns(b, SLOTS)
        assert set((await owners(b)).values()) == {b.context.node_id}
        proxy.release()
        await owns(a, SLOTS // 2)
        assert max(await epochs(b)) > max(before) + 1
        by = await all_claimed_once_by_owners(b, 300)
        assert by == {a.context.node_id, b.context.node_id}


Trouble = Callable[[PrivateValkey], None]


@pytest.mark.parametrize("trouble", [PrivateValkey.stop, PrivateValkey.pause], ids=["down", "mute"])
async def test_c19_two_of_three_lease_servers_are_enough(
    trouble: Trouble, fresh_database: str, redis_url: str, three: list[PrivateValkey]
) -> None:
    leases: dict[str, Any] = {"lease_redis_urls": urls(three), "lease_ttl_s": 4.0}
    async with running_node(fresh_database, redis_url, **leases) as node:
        before = await epochs(node)
        trouble(three[0])
        vitals, clock = node.context.vitals, node.context.clock
        later = clock.monotonic() + 2 * node.settings.lease_ttl_s
        await wait_for(lambda: vitals.lease_valid_until > later, 60, "renewed for more than a TTL")
        assert vitals.owned_slots == SLOTS
        assert await epochs(node) == before  # nothing was lost in between
        await node.ready()
        trouble(three[1])
        await owns(node, 0)
        assert await slots_part(node) == (503, False)
        task = await node.client.submit("t")
        for server in three[:2]:
            server.resume() if trouble is PrivateValkey.pause else server.start()
        await owns(node, SLOTS)

        async def fired() -> bool:
            return (await node.client.get(task.id)).status == "running"

        await wait_for(fired, 60, "what was due meanwhile fires")
        await node.ready()


async def test_c21_lease_servers_that_restart_empty_lead_to_no_second_claim(
    fresh_database: str, redis_url: str, three: list[PrivateValkey]
) -> None:
    await settle(*urls(three))
    three[2].stop()
    leases: dict[str, Any] = {"lease_redis_urls": urls(three), **_ROOMY}
    async with running_node(fresh_database, redis_url, **leases) as a:
        await watch_claims(partial(query, a.context.db))
        await submit_spread(a, 300, over_s=4)
        three[0].stop()
        three[0].start()
        three[2].start()
        async with running_node(fresh_database, redis_url, owns_slots=False, **leases) as b:
            await owns(b, SLOTS // 2)
            await all_claimed_once_by_owners(a, 300)


async def test_c21_a_new_system_and_a_restart_in_order_wait_for_nothing(
    fresh_database: str, redis_url: str
) -> None:
    for _ in range(2):
        async with running_node(fresh_database, redis_url, **_LONG):
            pass  # it owned all slots
        await flush(redis_url)


async def test_c21_a_node_that_joins_young_servers_waits_for_nothing(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url, **_LONG) as first,
        running_node(fresh_database, redis_url, owns_slots=False, **_LONG) as second,
    ):
        await owns(second, SLOTS // 2)
        await owns(first, SLOTS // 2)


async def test_c21_after_a_flush_every_node_takes_its_own_again_at_once(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        running_node(fresh_database, redis_url, **_LONG) as first,
        running_node(fresh_database, redis_url, owns_slots=False, **_LONG) as second,
    ):
        await owns(second, SLOTS // 2)
        await owns(first, SLOTS // 2)
        before, known = await owners(first), await slots.states(first.context.db, range(SLOTS))
        await flush(redis_url)

        async def taken_again() -> bool:
            now = await slots.states(first.context.db, range(SLOTS))
            return all(now[slot].epoch == known[slot].epoch + 1 for slot in now)

        await wait_for(taken_again, 90, "every slot is taken once more")
        assert await owners(first) == before


async def test_c21_slots_of_a_node_that_died_with_the_data_come_after_a_ttl(
    fresh_database: str, redis_url: str
) -> None:
    async with running_node(fresh_database, redis_url, lease_ttl_s=3.0) as node:
        # As a node leaves them that is killed.
        await query(node.context.db, "update slots set owner = 'dead', epoch = epoch + 1")
        await flush(redis_url)
        await owns(node, 0)
        client = connect(redis_url, name="test")
        try:
            since = (await call(client, "GET", keys.LEASE_SINCE, timeout_s=5)).split()[1]
        finally:
            await client.aclose()
        await owns(node, SLOTS)
        (row,) = await query(
            node.context.db,
            "select extract(epoch from min(taken_at))::float8 * 1000 as taken from slots",
        )
        assert row["taken"] >= int(since) + 3000 - 100  # two clocks


@pytest.mark.parametrize("name", ["closed", "read-only", "nonsense", "silence"])
async def test_c18_a_node_owns_nothing_on_answers_that_grant_nothing(
    name: str, fresh_database: str, redis_url: str
) -> None:
    """Nor does one of its actors crash: `running_node` would say so."""
    async with odd_server(ANSWERS[name]) as url:
        leases: dict[str, Any] = {"lease_redis_urls": (redis_url, url, url.removesuffix("0") + "1")}
        async with running_node(fresh_database, redis_url, owns_slots=False, **leases) as node:
            status, content = await slots_part(node)
            assert (status, content) == (503, False)
            task = await node.client.submit("t")
            troubles = node.context.vitals.redis
            await wait_for(lambda: "renewing leases" in troubles.now, 60, "it says so")
            assert (await node.client.get(task.id)).status == "pending"
            assert node.context.vitals.owned_slots == 0
