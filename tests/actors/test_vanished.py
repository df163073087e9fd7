"""What counts as vanished: absent, and no report that might explain it is left unrecorded."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from store_rig import NOW, claimed, own_all, query

from duly.actors.context import Context
from duly.actors.messages import Outcomes
from duly.actors.vanished import Vanished
from duly.storage import claims, keys
from duly.storage.claims import Claimed
from duly.storage.layout import slot_of
from duly.storage.slots import RunningRow
from duly.wheel.durations import from_us

Q = "default"


@pytest.fixture
def vanished(context: Context) -> Vanished:
    return Vanished(context)


async def some(context: Context, count: int = 1) -> list[tuple[Claimed, RunningRow]]:
    await own_all(context.db)
    return [
        (task, RunningRow(task.id, task.token, Q, NOW, 300.0, "node-a"))
        for task in await claimed(context.db, count)
    ]


async def report(context: Context, task_id: UUID) -> bytes:
    """A report that waits to be recorded; its entry id."""
    await context.streams.queues.announce(Q)
    entry: bytes = await context.streams._link.command(
        "XADD", keys.reports(Q), "*", "id", str(task_id), "token", 1, "outcome", "completed"
    )
    return entry


async def in_stream(context: Context) -> int:
    return (await context.streams.backlog(Q)).entries


async def test_it_is_published_at_the_second_look(context: Context, vanished: Vanished) -> None:
    ((_, row),) = await some(context)
    await vanished.note(Q, [row])
    assert await vanished.republish(Q) == 0
    await vanished.note(Q, [row])
    assert await vanished.republish(Q) == 1
    assert await in_stream(context) == 1
    assert await vanished.republish(Q) == 0


async def test_a_report_that_may_be_its_own_is_waited_for(
    context: Context, vanished: Vanished
) -> None:
    ((task, row),) = await some(context)
    entry = await report(context, task.id)
    for _ in range(3):
        await vanished.note(Q, [row])
        assert await vanished.republish(Q) == 0
    await context.streams.reports.settle(Q, [(entry, str(task.id), "1")])
    await vanished.note(Q, [row])
    assert await vanished.republish(Q) == 1


async def test_reports_that_are_newer_are_not_waited_for(
    context: Context, vanished: Vanished
) -> None:
    (_, row), (other, _) = await some(context, 2)
    await vanished.note(Q, [row])
    await report(context, other.id)
    await vanished.note(Q, [row])
    assert await vanished.republish(Q) == 1


async def test_what_has_ended_meanwhile_is_not_published(
    context: Context, vanished: Vanished
) -> None:
    (_, row), (other, kept) = await some(context, 2)
    await vanished.note(Q, [row, kept])
    await vanished.note(Q, [row, kept])
    await query(context.db, "delete from tasks where id = $1", row.id)
    assert await vanished.republish(Q) == 1
    (place, gone) = await context.streams.locate(Q, [(other.id, other.token), (row.id, 1)])
    assert place.entry_id
    assert not gone.entry_id


async def test_what_was_read_long_ago_is_looked_at_again(
    context: Context, vanished: Vanished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slots may have another owner meanwhile, who has published and recorded it."""
    ((_, row),) = await some(context)
    await vanished.note(Q, [row])
    await vanished.note(Q, [row])
    running, now = claims.running, context.clock.monotonic

    async def slow(*args: Any) -> Any:
        found = await running(*args)
        monkeypatch.setattr(context.clock, "monotonic", lambda: now() + 5.0)
        return found

    monkeypatch.setattr(claims, "running", slow)
    assert await vanished.republish(Q) == 0
    assert await in_stream(context) == 0
    monkeypatch.setattr(claims, "running", running)
    await vanished.note(Q, [row])
    assert await vanished.republish(Q) == 1


async def test_another_token_is_another_absence(context: Context, vanished: Vanished) -> None:
    ((_, row),) = await some(context)
    await vanished.note(Q, [row])
    await vanished.note(Q, [row._replace(version=row.version + 1)])
    assert await vanished.republish(Q) == 0


async def test_what_was_not_running_in_between_is_looked_at_anew(
    context: Context, vanished: Vanished
) -> None:
    ((_, row),) = await some(context)
    await vanished.note(Q, [row])
    vanished.keep_only(set(), frozenset())
    await vanished.note(Q, [row._replace(claimed_at=NOW + timedelta(seconds=9))])
    assert await vanished.republish(Q) == 0


async def test_what_was_absent_is_remembered_while_other_slots_are_looked_at(
    context: Context, vanished: Vanished
) -> None:
    ((task, row),) = await some(context)
    await vanished.note(Q, [row])
    vanished.keep_only(set(), frozenset({slot_of(task.id)}))
    await vanished.note(Q, [row])
    assert await vanished.republish(Q) == 1


async def test_c33_a_queue_with_something_absent_is_made_known_to_every_recorder(
    context: Context, vanished: Vanished
) -> None:
    ((task, row),) = await some(context)
    await report(context, task.id)
    await context.streams._link.command("SREM", keys.QUEUES, Q)
    await vanished.note(Q, [row])
    assert await context.streams.queues.names() == {Q}


async def begun(context: Context, ago_s: float) -> RunningRow:
    """A task of `on_lost = fail` whose start was granted so long ago."""
    await own_all(context.db)
    (task,) = await claimed(context.db, on_lost="fail", timeout=60.0)
    at = from_us(context.clock.now_us() - round(ago_s * 1e6))
    assert await claims.start(context.db, task.id, task.token, "start-1", "w1", at)
    return RunningRow(task.id, task.token, Q, NOW, 60.0, "node-a")


async def test_what_began_by_a_confirmed_start_may_still_report(
    context: Context, vanished: Vanished
) -> None:
    row = await begun(context, ago_s=1.0)
    for _ in range(4):
        await vanished.note(Q, [row])
        assert await vanished.republish(Q) == 0
    assert context.boxes.recorder.depth == 0


async def test_what_began_by_a_confirmed_start_is_lost_after_its_timeout(
    context: Context, vanished: Vanished
) -> None:
    row = await begun(context, ago_s=66.0)
    await vanished.note(Q, [row])
    await vanished.note(Q, [row])
    republishing = asyncio.ensure_future(vanished.republish(Q))
    message = await context.boxes.recorder.receive()
    assert isinstance(message, Outcomes)
    ended = [(one.id, one.token, one.outcome, one.worker) for one in message.ended]
    assert ended == [(row.id, row.version, "lost", "w1")]
    message.reply.set([True])
    assert await republishing == 0
    assert await in_stream(context) == 0
    assert context.vitals.lost == 1
