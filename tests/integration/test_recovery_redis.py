"""Redis may lose anything at any moment, and a node may die between any two steps."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import anyio
import pytest
from hand_worker import HandWorker
from node_rig import RunningNode, running_node
from private_valkey import PrivateValkey
from store_rig import query
from waiting import wait_for
from worker_rig import running

import duly
from duly.actors import old_claims, report_queues, upkeep
from duly.storage import keys

TASKS = 400


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as worker:
        yield worker


def sdk_worker(url: str) -> duly.Worker:
    worker = duly.Worker(url, concurrency=10, id="sdk")

    @worker.task("t")
    async def work(ctx: duly.Context, payload: int) -> int:
        await anyio.sleep(0.01)
        return payload

    return worker


async def all_completed(node: RunningNode, count: int = TASKS) -> None:
    """Each recorded once, whatever happened."""

    async def done() -> bool:
        return await node.count("finished_tasks") == count

    await wait_for(done, 120, "every task has ended", poll_s=0.1)
    assert await node.count("tasks") == 0
    assert await node.count("runs where outcome = 'completed'") == count
    rows = await query(node.context.db, "select count(distinct task_id) as n from runs")
    assert rows[0]["n"] == count


async def pretend_claimed(node: RunningNode, task_id: UUID) -> None:
    """As a node leaves a task that dies between its claim and its publication."""
    now = await query(
        node.context.db,
        "update tasks set status = 'running', version = version + 1, owner = 'dead',"
        " claimed_at = clock_timestamp() where id = $1 returning version",
        task_id,
    )
    assert len(now) == 1


async def test_what_was_claimed_and_never_published_is_published_after_the_grace(
    node: RunningNode, hand: HandWorker
) -> None:
    await hand.live()
    task_id = (await node.client.submit("t", delay=3600)).id
    await pretend_claimed(node, task_id)
    taken = await hand.take()
    assert (taken.id, taken.fields["token"]) == (str(task_id), "1")
    rows = await query(
        node.context.db,
        "select clock_timestamp() - claimed_at as age from tasks where id = $1", task_id,
    )  # fmt: skip
    grace = timedelta(seconds=node.settings.dispatch_grace_s)
    assert grace < rows[0]["age"] < grace + timedelta(seconds=60)
    assert node.context.vitals.republished == 1
    await hand.report(taken)
    await all_completed(node, 1)
    await hand.nothing_left()


Loss = Callable[[HandWorker], Awaitable[object]]
LOSSES: dict[str, Loss] = {
    "everything": lambda hand: hand.call("FLUSHDB"),
    "the tasks": lambda hand: hand.call("DEL", keys.tasks("default")),
    "the reports": lambda hand: hand.call("DEL", keys.reports("default")),
    "the hashes": lambda hand: hand.call("DEL", keys.inflight("default"), keys.entries("default")),
    "the queues": lambda hand: hand.call("DEL", keys.QUEUES),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES.keys())
async def test_c33_what_redis_lost_is_restored_under_load(
    node: RunningNode,
    redis_url: str,
    hand: HandWorker,
    lose: Loss,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running(sdk_worker(redis_url)):
        await node.client.submit_batch([{"type": "t", "payload": n} for n in range(TASKS)])

        async def some_done() -> bool:
            return await node.count("finished_tasks") > TASKS // 8

        await wait_for(some_done, 60, "some are done")
        await lose(hand)
        await all_completed(node)
    duly_lines = [record for record in caplog.records if record.name.startswith("duly")]
    assert len(duly_lines) < 100, "a hot loop"


async def test_c33_a_server_that_comes_back_without_its_data(
    fresh_database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    try:
        async with (
            running_node(fresh_database, server.url, redis_timeout_s=1.0) as node,
            running(sdk_worker(server.url)),
        ):
            await node.client.submit_batch([{"type": "t", "payload": n} for n in range(TASKS)])

            async def some_done() -> bool:
                return await node.count("finished_tasks") > TASKS // 8

            await wait_for(some_done, 60, "some are done")
            server.stop()
            server.start()
            await all_completed(node)
    finally:
        server.stop()


async def test_reports_that_a_dead_node_had_read_are_recorded(
    node: RunningNode, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also so many that they come in pages, and some that are stale by then."""
    monkeypatch.setattr(report_queues, "_ORPHAN_IDLE_MS", 200)
    monkeypatch.setattr(report_queues, "_EVERY_S", 0.2)
    await hand.live()
    count = 250
    await hand.call("XGROUP", "CREATE", keys.tasks("q"), keys.WORKERS_GROUP, "0", "MKSTREAM")
    await hand.call("XGROUP", "CREATE", keys.reports("q"), keys.NODES_GROUP, "0", "MKSTREAM")
    ids = await node.client.submit_batch([{"type": "t", "delay": 3600}] * count)
    for task_id in ids:
        await pretend_claimed(node, task_id)
        await hand.call(
            "XADD", keys.reports("q"), "*", "id", str(task_id), "token", 1, "outcome", "completed"
        )
    read = await hand.call(
        "XREADGROUP", "GROUP", keys.NODES_GROUP, "dead", "COUNT", 1000,
        "STREAMS", keys.reports("q"), ">",
    )  # fmt: skip
    assert len(read[0][1]) == count
    await hand.call("SADD", keys.QUEUES, "q")
    await all_completed(node, count)

    async def given_back() -> bool:
        pending = await hand.call("XPENDING", keys.reports("q"), keys.NODES_GROUP)
        return not pending[0] and not await hand.call("XLEN", keys.reports("q"))

    await wait_for(given_back, 30, "no report is left")


async def test_c34_nothing_is_kept_of_what_has_ended(
    node: RunningNode, redis_url: str, hand: HandWorker
) -> None:
    before = set(await hand.call("KEYS", "duly:*"))
    async with running(sdk_worker(redis_url)):
        for _ in range(3):
            await node.client.submit_batch([{"type": "t", "payload": n} for n in range(TASKS)])
        await all_completed(node, 3 * TASKS)
        await hand.nothing_left()
    more = {name.decode() for name in set(await hand.call("KEYS", "duly:*")) - before}
    minutes = keys.statistics(0).removesuffix("0")  # one key for each, and they expire
    more = {name for name in more if not name.startswith(minutes)}
    assert more <= {keys.QUEUES, keys.ALIVE, keys.tasks("default"), keys.reports("default")}


async def test_c34_what_a_cancel_leaves_in_flight_is_swept(
    fresh_database: str, redis_url: str, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_EVERY_S", 1.0)
    async with running_node(fresh_database, redis_url) as node:
        cancelled = (await node.running_task()).id
        kept = (await node.running_task()).id
        await node.client.cancel(cancelled)

        async def swept() -> bool:
            names = await hand.call("HKEYS", keys.inflight("default"))
            return bool(names == [str(kept).encode()])

        await wait_for(swept, 60, "the cancelled one is forgotten")
        await hand.live()
        assert (await hand.take()).id == str(kept)


async def test_running_tasks_beyond_a_page_are_looked_at(
    node: RunningNode, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long runs must not hide what was claimed after them."""
    monkeypatch.setattr(old_claims, "_ROWS", 7)
    monkeypatch.setattr(old_claims, "_PAGE", 3)
    await hand.live()
    await node.client.submit_batch([{"type": "long"}] * 20)
    for _ in range(20):
        await hand.take()
    task_id = (await node.client.submit("t", delay=3600)).id
    await pretend_claimed(node, task_id)
    await hand.live()
    assert (await hand.take()).id == str(task_id)
    assert node.context.vitals.republished == 1
