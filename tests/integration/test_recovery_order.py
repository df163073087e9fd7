"""What came due at three nodes while Redis stood still goes out in one order after it: by priority, then due time."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from draining import drain
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from waiting import wait_for

from duly.storage import keys

TASKS = 3_000
WINDOW = 50
OVERTAKEN = 4 * WINDOW
"""By so many at most: a window's worth from each other node, and as much again."""


@pytest.fixture
async def server(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PrivateValkey]:
    # However slow the machine: no word of a living node runs out, and each waits for all others.
    monkeypatch.setattr(keys, "WAITING_TTL_MS", 60_000)
    monkeypatch.setattr("duly.actors.dispatcher._HEAR_S", 60.0)
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

    await wait_for(shared, 60, "the nodes share the slots")
    return nodes


@pytest.mark.parametrize("priorities", [(5,), (9, 5, 2)])
async def test_three_nodes_fire_a_backlog_in_one_order(
    fresh_database: str, server: PrivateValkey, priorities: tuple[int, ...]
) -> None:
    async with AsyncExitStack() as stack:
        nodes = await three_nodes(stack, fresh_database, server.url)
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
        claimed = await nodes[0].count("tasks where status = 'running'")
        server.resume()
        taken = await drain(nodes[0], server.url, TASKS, at_once=WINDOW // 2)
    assert sorted(one.id for one in taken) == sorted(map(str, ids)), "each once"
    place = {str(one): n for n, one in enumerate(ids)}
    priority = {one.id: priorities[place[one.id] % len(priorities)] for one in taken}
    best_first = sorted(taken[claimed:], key=lambda one: (-priority[one.id], one.due_us))
    turn = {one.id: n for n, one in enumerate(best_first)}
    # Without what had been claimed when the outage was noticed, which comes first.
    overtaken = [n - turn[one.id] for n, one in enumerate(taken[claimed:])]
    assert max(overtaken) <= OVERTAKEN, max(overtaken)
