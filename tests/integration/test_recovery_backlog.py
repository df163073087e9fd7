"""10 000 tasks fall due while Redis is down: all are accepted, and all fire after its return, in order.

In CI the outage is short. `DULY_TEST_OUTAGE_S=60` makes it a minute.
"""

import os
from uuid import UUID

import anyio
import pytest
from draining import drain
from node_rig import running_node
from private_valkey import PrivateValkey
from store_rig import query

OUTAGE_S = float(os.environ.get("DULY_TEST_OUTAGE_S", "3"))
TASKS = 10_000
BATCH = 2_500
MOVED = 500
"""Places by which tasks may be out of order, on average; in any order it would be thousands."""


async def test_10_000_tasks_that_fall_due_while_redis_is_down(
    fresh_database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    try:
        async with running_node(fresh_database, server.url, redis_timeout_s=1.0) as node:
            server.stop()
            back_at = anyio.current_time() + OUTAGE_S
            ids: list[UUID] = []
            for begin in range(0, TASKS, BATCH):
                delays = (0.1 + OUTAGE_S * n / TASKS for n in range(begin, begin + BATCH))
                ids += await node.client.submit_batch([{"type": "t", "delay": d} for d in delays])
            assert len(set(ids)) == TASKS
            await anyio.sleep_until(back_at)
            # What was under way when the outage was noticed, and not a task more.
            running = await query(node.context.db, "select id from tasks where status = 'running'")
            assert len(running) <= 4 * 200
            in_memory = node.context.vitals.wheel_entries + node.context.vitals.ready_entries
            server.start()
            taken = await drain(node, server.url)
            assert in_memory <= TASKS + 200  # two counts, and some are on their way in between
            assert await node.count("runs where outcome = 'completed'") == TASKS
    finally:
        server.stop()
    assert sorted(one.id for one in taken) == sorted(map(str, ids)), "each once"
    # In order of due time, but for what was under way. A batch whose publication fails once more, and
    # slots that are taken again a moment later, come a moment later.
    under_way = {str(row["id"]) for row in running}
    taken = [one for one in taken if one.id not in under_way]
    place = {one.id: number for number, one in enumerate(sorted(taken, key=lambda one: one.due_us))}
    moved = [abs(number - place[one.id]) for number, one in enumerate(taken)]
    assert sum(moved) <= MOVED * len(moved), (max(moved), sum(map(bool, moved)))
