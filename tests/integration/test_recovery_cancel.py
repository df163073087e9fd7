"""C24 and C29: nothing is in the stream before its time, and a cancel wins wherever its task is."""

import json
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from store_rig import query
from waiting import wait_for

from duly.actors.lead import Lead
from duly.nodes.client import Conflict
from duly.storage import keys
from duly.storage.channel import subscribed
from duly.storage.redis import connect


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as worker:
        await worker.live()
        yield worker


async def status(node: RunningNode, task_id: UUID) -> str:
    return (await node.client.get(task_id)).status


async def outcomes(node: RunningNode, task_id: UUID) -> list[str]:
    return [run.outcome async for run in node.client.runs(task_id)]


async def next_one_is(node: RunningNode, hand: HandWorker, delay: float = 0.0) -> None:
    """Another task, due later, is the next that a worker gets."""
    later = (await node.client.submit("later", delay=delay)).id
    taken = await hand.take()
    assert taken.id == str(later)
    await hand.report(taken)


def far_ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have tasks claimed so long before their due time."""
    for name in ("us", "reach_us"):
        monkeypatch.setattr(Lead, name, property(lambda _: round(seconds * 1_000_000)))


async def test_c24_nothing_is_in_the_stream_before_its_time(
    node: RunningNode, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_ahead(monkeypatch, 1.0)  # however long they have been claimed then
    far = await node.client.submit_batch([{"type": "far", "delay": 6 * 3600}] * 100)
    near = await node.client.submit_batch([{"type": "near", "delay": 1.5}] * 100)
    taken = [await hand.take() for _ in range(100)]
    for one in taken:
        published_ms = int(one.entry_id.split(b"-")[0])
        assert published_ms > float(one.fields["due"]) - 50  # two clocks are compared
    rows = await query(
        node.context.db,
        "select min(claimed_at - next_run_at) as early from tasks where status = 'running'",
    )
    assert rows[0]["early"].total_seconds() < 0
    assert {one.id for one in taken} == {str(one) for one in near}
    for one in taken:
        await hand.report(one)
    await hand.nothing_left()
    assert await node.count("runs") == 100
    assert await node.count("tasks where retry_count = 0 and status = 'pending'") == len(far)


async def test_c29_cancelled_before_it_was_read_from_the_store(
    node: RunningNode, hand: HandWorker
) -> None:
    task_id = (await node.client.submit("t", delay=3600)).id
    assert (await node.client.cancel(task_id)).status == "cancelled"
    await next_one_is(node, hand)
    assert await status(node, task_id) == "cancelled"
    assert await outcomes(node, task_id) == []


async def test_c29_cancelled_in_the_wheel(node: RunningNode, hand: HandWorker) -> None:
    task_id = (await node.client.submit("t", delay=5)).id
    await wait_for(lambda: node.context.vitals.wheel_entries == 1, 30, "it is in the wheel")
    await node.client.cancel(task_id)
    await next_one_is(node, hand, delay=5.2)
    assert await status(node, task_id) == "cancelled"
    assert await outcomes(node, task_id) == []


async def test_c29_cancelled_between_claim_and_publication(
    node: RunningNode, hand: HandWorker
) -> None:
    """And a publisher that is late does not bring it back."""
    ids = await node.client.submit_batch([{"type": "t", "delay": 3600}] * 2)
    await query(
        node.context.db,
        "update tasks set status = 'running', version = version + 1, owner = 'dead',"
        " claimed_at = clock_timestamp() where id = any($1)",
        ids,
    )
    assert (await node.client.cancel(ids[0])).status == "cancelled"
    taken = await hand.take()  # the other one is published after the grace
    assert taken.id == str(ids[1])
    await hand.report(taken)
    await next_one_is(node, hand)
    assert await status(node, ids[0]) == "cancelled"
    assert await outcomes(node, ids[0]) == ["cancelled"]


async def test_c29_cancelled_while_it_is_claimed_ahead_of_its_time(
    node: RunningNode, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    far_ahead(monkeypatch, 8.0)
    cancelled, kept = await node.client.submit_batch([{"type": "t", "delay": 9}] * 2)

    async def claimed() -> bool:
        return [await status(node, one) for one in (cancelled, kept)] == ["running"] * 2

    await wait_for(claimed, 30, "both are claimed")
    with pytest.raises(Conflict):
        await node.client.update(kept, priority=1)
    assert (await node.client.cancel(cancelled)).status == "cancelled"
    assert (await hand.sizes())[0] == 0, "it is not due yet"
    taken = await hand.take()
    assert taken.id == str(kept)
    await hand.report(taken)
    await next_one_is(node, hand)
    assert await outcomes(node, cancelled) == ["cancelled"]


async def test_c29_cancelled_in_the_stream_unread(node: RunningNode, hand: HandWorker) -> None:
    task_id = (await node.client.submit("t")).id

    async def in_stream() -> bool:
        return (await hand.sizes())[0] == 1

    await wait_for(in_stream, 30, "it is in the stream")
    assert (await node.client.cancel(task_id)).status == "cancelled"
    assert (await hand.sizes())[0] == 0
    await next_one_is(node, hand)
    assert await outcomes(node, task_id) == ["cancelled"]


async def test_c29_cancelled_while_a_worker_has_it(
    node: RunningNode, hand: HandWorker, redis_url: str
) -> None:
    client = connect(redis_url, name="test-control")
    try:
        async with subscribed(client, keys.control(hand.name), answer_s=5.0) as next_message:
            task_id = (await node.client.submit("t")).id
            taken = await hand.take()
            assert await hand.may_begin(taken)
            assert (await node.client.cancel(task_id)).status == "cancelled"
            message = await wait_for(lambda: next_message(1.0), 30, "the worker is told")
        assert json.loads(message) == {
            "cancel": str(task_id), "token": int(taken.fields["token"]),
        }  # fmt: skip
    finally:
        await client.aclose()
    assert not await hand.may_begin(taken)
    await hand.report(taken)

    async def stale() -> bool:
        return node.context.vitals.stale_reports == 1

    await wait_for(stale, 30, "its report is stale")
    assert await status(node, task_id) == "cancelled"
    assert await outcomes(node, task_id) == ["cancelled"]


async def test_c29_cancelled_between_two_attempts_whose_first_is_still_held(
    node: RunningNode, hand: HandWorker
) -> None:
    """The attempt was recorded as lost; its worker wakes up before the entry was taken out."""
    task_id = (await node.client.submit("t")).id
    taken = await hand.take()
    await query(
        node.context.db,
        "update tasks set status = 'pending', owner = null, retry_count = 1, "
        "next_run_at = next_run_at + interval '1 hour' where id = $1",
        task_id,
    )
    assert await hand.may_begin(taken)
    assert (await node.client.cancel(task_id)).status == "cancelled"
    assert not await hand.may_begin(taken)


async def test_c29_a_result_that_was_first_stays(node: RunningNode, hand: HandWorker) -> None:
    task_id = (await node.client.submit("t")).id
    await hand.report(await hand.take())

    async def over() -> bool:
        return await status(node, task_id) == "completed"

    await wait_for(over, 30, "it is completed")
    with pytest.raises(Conflict):
        await node.client.cancel(task_id)
    assert await outcomes(node, task_id) == ["completed"]
