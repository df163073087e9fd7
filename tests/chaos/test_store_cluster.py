"""Three nodes, as processes, on two stores: slots move under load, and nodes and stores are killed."""

import asyncio
import re
from collections.abc import AsyncIterator
from uuid import UUID

import aiohttp
import asyncpg
import pytest
from completing import completing
from processes import Processes
from servers import ServerFactory
from store_cluster import StoreCluster, an_id, loading
from waiting import wait_for

from duly.storage import stores
from duly.storage.layout import slot_of

pytestmark = pytest.mark.chaos

_MOVING = range(64, 128)
_MOVE = ("store", "move-slots", "--from", "0", "--to", "1", "--slots", "64-127")
_LATE_S = 5.0


@pytest.fixture
def cluster(make_servers: ServerFactory, processes: Processes) -> StoreCluster:
    return StoreCluster([make_servers(), make_servers()], processes)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def test_slots_move_under_load_of_three_nodes(
    cluster: StoreCluster, session: aiohttp.ClientSession
) -> None:
    await cluster.all_owned(session, 3)
    async with completing(cluster.redis_url) as given:
        async with loading(cluster, session) as ids:
            await wait_for(lambda: len(ids) > 50, 60, "there is load")
            before = len(ids)
            mover = cluster.command(*_MOVE)
            assert await asyncio.to_thread(mover.wait, 120) == 0, mover.output
            after = len(ids)
            await wait_for(lambda: len(ids) > after + 50, 60, "the load goes on")
        await cluster.completed(ids)
    assert all(
        given[one] for one in ids
    )  # a report that waits may have its task sent again: it is recorded once
    late = {True: [0.0], False: [0.0]}
    for one in ids[before:]:
        late[slot_of(UUID(one)) in _MOVING].append(given.late_s[one])
    # What a busy machine holds up, it holds up everywhere.
    assert max(late[True]) <= _LATE_S + max(late[False])
    assert min(min(one) for one in late.values()) > -0.01
    said = re.search(r"they stood still for ([0-9.]+) s", mover.output)
    assert said is not None, mover.output
    assert float(said[1]) <= _LATE_S
    assert (await stores.facts(cluster.urls[1])).slots == frozenset(range(64, 256))


async def test_kill_9_of_a_node_and_of_one_stores_postgresql(
    cluster: StoreCluster, session: aiohttp.ClientSession
) -> None:
    await cluster.all_owned(session, 3)
    async with completing(cluster.redis_url):
        async with loading(cluster, session) as ids:
            await wait_for(lambda: len(ids) > 50, 60, "there is load")
            cluster.nodes[0].kill9()
            await cluster.all_owned(session, 2)
            after = len(ids)
            await wait_for(lambda: len(ids) > after + 50, 60, "the load goes on")
        await cluster.completed(ids)

        there = [an_id(range(128, 256)) for _ in range(20)]
        for one in there:
            await cluster.submit(session, one, delay=3)
        cluster.servers[1].postgres.kill9()
        here = [an_id(range(128)) for _ in range(60)]
        for one in here:
            await cluster.submit(session, one)

        async def all_of_the_other_store() -> bool:
            connection = await asyncpg.connect(cluster.urls[0], timeout=10)
            try:
                done = await connection.fetchval(
                    "select count(*) from finished_tasks where id = any($1::uuid[])", here
                )
                return bool(done == len(here))
            finally:
                await connection.close()

        await wait_for(all_of_the_other_store, 90, "the other store's tasks are completed")

        async def told() -> bool:
            status, body = await cluster.call(session, "GET", "/readyz")
            return status == 200 and not body["parts"]["store 1"]["ok"]

        await wait_for(told, 60, "readyz names the store", ignore=(aiohttp.ClientError,))
        assert cluster.nodes[1].exit_code is None
        cluster.servers[1].revive(cluster.servers[1].postgres)
        await cluster.completed([*there, *here])
    for node in cluster.nodes[1:]:
        assert node.exit_code is None
        assert "crashed" not in node.output


@pytest.mark.parametrize("store", [0, 1])
async def test_kill_9_of_a_stores_postgresql_in_the_middle_of_a_move(
    cluster: StoreCluster, session: aiohttp.ClientSession, store: int
) -> None:
    await cluster.all_owned(session, 3)
    await _fill(cluster.urls[0], 6000)
    async with completing(cluster.redis_url):
        async with loading(cluster, session) as ids:
            await wait_for(lambda: len(ids) > 50, 60, "there is load")
            mover = cluster.command(*_MOVE)

            async def begun() -> bool:
                return (await stores.facts(cluster.urls[0])).begun is not None

            await wait_for(begun, 60, "the move has begun")
            cluster.servers[store].postgres.kill9()
            cluster.servers[store].revive(cluster.servers[store].postgres)
            assert await asyncio.to_thread(mover.wait, 180) == 0, mover.output
            after = len(ids)
            await wait_for(lambda: len(ids) > after + 50, 60, "the load goes on")
        await cluster.completed(ids)
    assert (await stores.facts(cluster.urls[1])).slots == frozenset(range(64, 256))
    assert await _count(cluster) == 6000
    looked = cluster.command("store", "check")
    assert looked.wait() == 0, looked.output
    assert "on their way" not in looked.output


async def _fill(url: str, count: int) -> None:
    """Tasks that wait, in the slots of the first store."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
            " select id, 'far', 'default', '1', now() + interval '1 day', now(), now(), now()"
            " from (select gen_random_uuid() as id from generate_series(1, 3 * $1::int)) i"
            " where get_byte(sha256(uuid_send(id)), 0) < 128 limit $1", count,
        )  # fmt: skip
    finally:
        await connection.close()


async def _count(cluster: StoreCluster) -> int:
    """How many tasks wait, in the store that holds their slot."""
    total = 0
    for url in cluster.urls:
        connection = await asyncpg.connect(url)
        try:
            total += await connection.fetchval(
                "select count(*) from tasks where type = 'far' and slot in (select slot from slots)"
            )
        finally:
            await connection.close()
    return total
