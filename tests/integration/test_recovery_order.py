"""What came due at three nodes while Redis stood still goes out in one order after it: by priority, then due time."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import pytest
from draining import drain
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from waiting import wait_for

from duly.storage import keys, slots
from duly.storage.redis import call, connect

TASKS = 3_000
WINDOW = 50
MOVED = 50
"""Places by which tasks may be out of order, on average."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine: no word of a living node runs out, and each waits for all others."""
    monkeypatch.setattr(keys, "WAITING_TTL_MS", 60_000)
    monkeypatch.setattr("duly.actors.dispatcher._HEAR_S", 60.0)


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PrivateValkey]:
    one = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    one.start()
    yield one
    one.stop()


async def three_nodes(stack: AsyncExitStack, database: str, url: str) -> list[RunningNode]:
    """They share the slots, and keep them while Redis stands still."""
    nodes = [
        await stack.enter_async_context(
            running_node(
                database, url, owns_slots=False, redis_timeout_s=1.0, lease_ttl_s=60.0,
                window_floor=WINDOW,
            )
        )
        for _ in range(3)
    ]  # fmt: skip

    def shared() -> bool:
        owned = [node.context.vitals.owned_slots for node in nodes]
        return sum(owned) == 256 and max(owned) - min(owned) <= 1

    await wait_for(shared, 120, "the nodes share the slots")
    return nodes


async def backlog(
    nodes: Sequence[RunningNode], server: PrivateValkey, priorities: Sequence[int] = (5,)
) -> list[UUID]:
    """Let tasks come due over five minutes while Redis stands still; until every node knows its own."""
    server.pause()
    first = datetime.now(UTC) - timedelta(seconds=TASKS / 10)
    tasks = [
        {
            "type": "t",
            "run_at": (first + timedelta(seconds=n / 10)).isoformat(),
            "priority": priorities[n % len(priorities)],
        }
        for n in range(TASKS)
    ]
    ids = await nodes[0].client.submit_batch(tasks)

    def known() -> bool:
        vitals = [node.context.vitals for node in nodes]
        return sum(one.ready_entries + one.claimed for one in vitals) >= TASKS

    await wait_for(known, 60, "the nodes know what is due")
    return ids


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("priorities", [(5,), (9, 5, 2)])
async def test_three_nodes_fire_a_backlog_in_one_order(
    fresh_database: str, server: PrivateValkey, priorities: tuple[int, ...]
) -> None:
    async with AsyncExitStack() as stack:
        nodes = await three_nodes(stack, fresh_database, server.url)
        ids = await backlog(nodes, server, priorities)
        claimed = await nodes[0].count("tasks where status = 'running'")
        server.resume()
        taken = await drain(nodes[0], server.url, WINDOW // 2)
        assert await nodes[0].count("runs where outcome = 'completed'") == TASKS
    assert {one.id for one in taken} == set(map(str, ids))
    place = {str(one): n for n, one in enumerate(ids)}
    priority = {one.id: priorities[place[one.id] % len(priorities)] for one in taken}
    best_first = sorted(taken[claimed:], key=lambda one: (-priority[one.id], one.due_us))
    turn = {one.id: n for n, one in enumerate(best_first)}
    # Without what had been claimed when the outage was noticed, which comes first.
    moved = [abs(n - turn[one.id]) for n, one in enumerate(taken[claimed:])]
    assert sum(moved) <= MOVED * len(moved), (max(moved), sum(moved) / len(moved))


async def test_a_node_that_stands_still_holds_up_the_others_for_a_second_only(
    fresh_database: str, server: PrivateValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has said what waits with it, and publishes no more."""
    over = anyio.Event()
    async with AsyncExitStack() as stack:
        nodes = await three_nodes(stack, fresh_database, server.url)
        ids = await backlog(nodes, server)
        server.resume()
        stuck = nodes[0].context
        await wait_for(lambda: has_spoken(server.url, stuck.node_id), 60, "it has spoken")
        publish = stuck.streams.publish

        async def hang(*args: Any, **options: Any) -> Any:
            await over.wait()
            return await publish(*args, **options)

        monkeypatch.setattr(stuck.streams, "publish", hang)
        states = await slots.states(stuck.db, range(slots.SLOTS))
        own = ",".join(str(slot) for slot, one in states.items() if one.owner == stuck.node_id)
        taken = await drain(nodes[1], server.url, WINDOW // 2, of=f"slot not in ({own})")
        assert await nodes[1].count(f"tasks where slot in ({own})") > TASKS // 6
        over.set()
        taken += await drain(nodes[1], server.url, WINDOW // 2)
        assert await nodes[1].count("runs where outcome = 'completed'") == TASKS
    assert {one.id for one in taken} == set(map(str, ids))


async def has_spoken(url: str, node_id: str) -> bool:
    async with connect(url, name="test") as client:
        return bool(await call(client, "HEXISTS", keys.waiting("default"), node_id, timeout_s=5))
