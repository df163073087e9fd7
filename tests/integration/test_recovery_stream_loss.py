"""C33 at full size: 5,000 tasks in a stream, 500 of them with a worker, and the stream is gone."""

import logging
import time
from collections.abc import AsyncIterator

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from store_rig import query
from waiting import wait_for

from duly.storage import keys
from duly.storage.conveyor import Conveyor, Entry, GroupMissingError

TASKS = 5_000
HELD = 500
Q = "default"
LOSSES = {"everything": ("FLUSHDB",), "the stream": ("DEL", keys.tasks(Q))}


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as one:
        yield one


def report(entry: Entry) -> tuple[bytes, list[str]]:
    return entry.entry_id, ["id", entry.id, "token", str(entry.token), "outcome", "completed"]


async def take(conveyor: Conveyor, count: int) -> list[Entry]:
    try:
        return [one for one in await conveyor.read([Q], count, 100) if isinstance(one, Entry)]
    except GroupMissingError:
        await conveyor.create_group(Q)
        return []


@pytest.mark.parametrize("lost", LOSSES)
async def test_c33_five_thousand_tasks_are_restored(
    fresh_database: str, redis_url: str, hand: HandWorker, lost: str
) -> None:
    """Well before `dispatch_grace_s`; how long it took is in the log. Nothing is lost, nothing doubled."""
    conveyor = Conveyor(redis_url, "hand")
    try:
        async with running_node(
            fresh_database, redis_url, window_floor=2 * TASKS, dispatch_grace_s=600.0
        ) as node:
            await node.client.submit_batch([{"type": "t"}] * TASKS)
            await conveyor.beat(b"{}")
            await wait_for(lambda: length(hand, TASKS), 120, "all are in the stream")
            held: list[Entry] = []
            while len(held) < HELD:
                held += await take(conveyor, HELD - len(held))
            await wait_for(lambda: looked_after(hand), 60, "the node has seen the stream")
            await hand.call(*LOSSES[lost])
            began = time.monotonic()
            await conveyor.report(Q, map(report, held[: HELD // 2]))  # half of them end meanwhile

            async def restored() -> bool:
                await conveyor.beat(b"{}")
                gone = await node.count("finished_tasks")
                return await length(hand, TASKS - gone)

            await wait_for(restored, 120, "what is not finished is in the stream again")
            logging.getLogger("test").warning("restored in %.1f s", time.monotonic() - began)
            ran = {one.id for one in held[: HELD // 2]}

            async def over() -> bool:
                await conveyor.beat(b"{}")
                entries = await take(conveyor, 500)
                if entries:
                    ran.update(one.id for one in entries)
                    await conveyor.report(Q, map(report, entries))
                return await node.count("finished_tasks") == TASKS

            await wait_for(over, 120, "every task has ended")
            await recorded_once(node)
            await hand.nothing_left()
            assert len(ran) == TASKS
    finally:
        await conveyor.close()


async def looked_after(hand: HandWorker) -> bool:
    """A stream that is lost before that is restored after `dispatch_grace_s` only."""
    rows = await hand.call("XINFO CONSUMERS", keys.tasks(Q), keys.WORKERS_GROUP)
    return any(row[1].startswith(keys.MARK.encode()) for row in rows)


async def length(hand: HandWorker, count: int) -> bool:
    return bool(await hand.call("XLEN", keys.tasks(Q)) == count)


async def recorded_once(node: RunningNode) -> None:
    rows = await query(
        node.context.db,
        "select count(*), count(distinct task_id), count(*) filter (where outcome = 'completed')"
        " from runs",
    )
    assert tuple(rows[0]) == (TASKS, TASKS, TASKS)
