"""The recorder by itself: whatever fails or is cut short, each report counts once."""

import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest
from context_rig import open_context
from hand_worker import HandWorker
from store_rig import claimed, ended, own_all, query
from waiting import wait_for

from duly.actors import recorder, report_queues
from duly.actors.context import Context
from duly.actors.messages import Outcomes, Ownership
from duly.actors.meters.meters import Measured
from duly.actors.recorder import Recorder
from duly.actors.report_queues import ReportQueues
from duly.actors.runtime import Reply
from duly.storage import keys
from duly.storage.claims import Claimed
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.stream_facts import Report
from duly.storage.streams import Streams

Q = "default"


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as worker:
        yield worker


async def dispatched(context: Context, count: int = 1) -> list[Claimed]:
    await own_all(context.db)
    tasks = await claimed(context.db, count)
    await context.streams.publish(Q, tasks)
    return tasks


async def completed(context: Context) -> int:
    return len(await query(context.db, "select from runs where outcome = 'completed'"))


async def test_reports_are_recorded_and_forgotten(context: Context, hand: HandWorker) -> None:
    await dispatched(context, 30)
    for taken in await hand.read(30):
        await hand.report(taken)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).serve, anyio.Event())
        await hand.nothing_left()
        tasks.cancel_scope.cancel()
    assert (await completed(context), context.vitals.recorded) == (30, 30)


async def test_a_recorder_that_is_cut_short_anywhere_loses_and_repeats_nothing(
    context: Context, hand: HandWorker
) -> None:
    """Cancelled and made anew, as by the supervisor, while reports come in."""
    tasks = await dispatched(context, 200)
    seed = random.Random(7)
    async with anyio.create_task_group() as lives:

        async def live_and_die() -> None:
            for _ in range(60):
                with anyio.move_on_after(seed.uniform(0.002, 0.03)):
                    await Recorder(context).serve(anyio.Event())
            await Recorder(context).serve(anyio.Event())

        lives.start_soon(live_and_die)
        while some := await hand.read(10):
            for taken in some:
                await hand.report(taken)
        await hand.nothing_left()
        lives.cancel_scope.cancel()
    assert await completed(context) == len(tasks)
    assert await query(context.db, "select from tasks") == []


async def test_a_stop_leaves_nothing_that_was_read_unrecorded(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    real = Database.fetch

    async def fetch(self: Database, name: str, *args: Any) -> list[Any]:
        if name == "attempts":
            begun.set()
            await go_on.wait()
        return await real(self, name, *args)

    monkeypatch.setattr(Database, "fetch", fetch)
    monkeypatch.setattr(recorder, "_FINISH_S", 60.0)
    await dispatched(context)
    (taken,) = await hand.read()
    await hand.report(taken, "failed")
    stopped = Recorder(context)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stopped.serve, anyio.Event())
        await begun.wait()
        stopped.request_stop()
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert await query(context.db, "select from runs where outcome = 'failed'")
    await hand.nothing_left()


async def test_a_stop_does_not_wait_long_for_a_store_that_is_away(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = anyio.Event()

    async def fetch(self: Database, name: str, *args: Any) -> list[Any]:
        away.set()
        raise StoreUnavailableError("away")

    await dispatched(context)
    (taken,) = await hand.read()
    await hand.report(taken)
    monkeypatch.setattr(Database, "fetch", fetch)
    monkeypatch.setattr(recorder, "_FINISH_S", 0.1)
    stopped = Recorder(context)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stopped.serve, anyio.Event())
            await away.wait()
            stopped.request_stop()
    assert (await hand.sizes())[1] == 1


async def test_a_page_that_is_being_recorded_does_not_hold_up_the_next(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it read again meanwhile, when the recorder looks for what was left behind."""
    first, go_on = anyio.Event(), anyio.Event()
    real, read = Database.fetch, context.streams.reports.read
    again = 0

    async def fetch(self: Database, name: str, *args: Any) -> list[Any]:
        if name == "complete" and not first.is_set():
            first.set()
            await go_on.wait()
        return await real(self, name, *args)

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal again
        again += more.get("again", False)
        return await read(*args, **more)

    monkeypatch.setattr(Database, "fetch", fetch)
    monkeypatch.setattr(context.streams.reports, "read", counted)
    await dispatched(context, 2)
    one, another = await hand.read()
    await hand.report(one)
    recording = Recorder(context)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recording.serve, anyio.Event())
        await first.wait()
        await hand.report(another)

        async def recorded() -> bool:
            return await completed(context) == 1

        await wait_for(recorded, 60, "the second report is recorded")
        looked = again
        recording._queues.look_again()
        await wait_for(recording._emptying.locked, 60, "it waits before it looks")
        assert again == looked
        go_on.set()
        await hand.nothing_left()
        tasks.cancel_scope.cancel()
    assert (await completed(context), context.vitals.stale_reports) == (2, 0)


async def test_where_tasks_wait_for_others_to_end_their_reports_are_not_gathered(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_AT_ONCE_S", 60.0)  # as if reports flowed
    monkeypatch.setattr(recorder, "_GATHER_S", 3600.0)
    await own_all(context.db)
    keyed = await claimed(context.db, 2, concurrency_key="k")
    plain = await claimed(context.db, 2)
    await context.streams.publish(Q, keyed + plain)
    recording = Recorder(context)
    recording._awaited = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recording.serve, anyio.Event())
        for number, taken in enumerate(await hand.read(3), start=1):
            awaited = taken.id in {str(one.id) for one in keyed}

            def told(number: int = number, awaited: bool = awaited) -> bool:
                return (context.vitals.recorded, recording._awaited) == (number, awaited)

            await hand.report(taken)
            await wait_for(told, 20, "it is recorded at once, and whether others wait is known")
        tasks.cancel_scope.cancel()


async def test_messages_are_answered_one_by_one(context: Context) -> None:
    done, stale = await dispatched(context, 2)
    reply: Reply[list[bool]] = Reply()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).serve, anyio.Event())
        reports = [ended(done), ended(stale, token=99), ended(done)]
        await context.boxes.recorder.send(Outcomes(reports, reply))
        assert await reply.wait(60) == [True, False, True]
        tasks.cancel_scope.cancel()


async def test_a_store_that_is_away_is_told_to_askers_and_waited_for_by_reports(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked, reported) = await dispatched(context, 2)
    away = True
    real = Database.fetch

    async def fetch(self: Database, name: str, *args: Any) -> list[Any]:
        if away and name == "complete":
            raise StoreUnavailableError("away")
        return await real(self, name, *args)

    monkeypatch.setattr(Database, "fetch", fetch)
    taken = {one.id: one for one in await hand.read()}
    await hand.report(taken[str(reported.id)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).serve, anyio.Event())
        reply: Reply[list[bool]] = Reply()
        await context.boxes.recorder.send(Outcomes([ended(asked)], reply))
        with pytest.raises(StoreUnavailableError):
            await reply.wait(60)
        assert (await hand.sizes())[1] == 1  # it is not settled before it is recorded
        away = False

        async def recorded() -> bool:
            return await completed(context) == 1

        await wait_for(recorded, 60, "the report is recorded")
        tasks.cancel_scope.cancel()


async def test_what_was_recorded_before_the_store_failed_is_not_stale_at_the_next_try(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement for what completed, another for what failed: the second one fails twice."""
    await dispatched(context, 6)
    context.feed.listeners = 1
    real, tries = Database.fetch, 0

    async def fetch(self: Database, name: str, *args: Any) -> list[Any]:
        nonlocal tries
        if name == "settle" and (tries := tries + 1) < 3:
            raise StoreUnavailableError("away")
        return await real(self, name, *args)

    monkeypatch.setattr(Database, "fetch", fetch)
    measured: list[str] = []
    ends = context.meters.ended

    def note(some: Sequence[Measured]) -> None:
        measured.extend(one.outcome for one in some)
        ends(some)

    monkeypatch.setattr(context.meters, "ended", note)
    for number, taken in enumerate(await hand.read(6)):
        await hand.report(taken, "completed" if number < 4 else "failed")
        if not number:
            await hand.report(taken)  # and it comes twice
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).serve, anyio.Event())
        await hand.nothing_left()
        tasks.cancel_scope.cancel()
    assert tries >= 3
    assert (context.vitals.recorded, context.vitals.stale_reports) == (6, 1)
    assert sorted(measured) == ["completed"] * 4 + ["failed"] * 2
    changes = [one.change for one in context.feed.take()[0]]
    assert (changes.count("failed"), len(changes)) == (2, 7)
    assert changes.count("stale") <= 1  # the one that came twice


async def test_what_an_asker_had_recorded_in_part_is_counted(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = await dispatched(context, 2)
    real = Database.fetch

    async def fetch(self: Database, name: str, *args: Any) -> list[Any]:
        if name == "settle":
            raise StoreUnavailableError("away")
        return await real(self, name, *args)

    monkeypatch.setattr(Database, "fetch", fetch)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).serve, anyio.Event())
        reply: Reply[list[bool]] = Reply()
        reports = [ended(some[0]), ended(some[1], "failed")]
        await context.boxes.recorder.send(Outcomes(reports, reply))
        with pytest.raises(StoreUnavailableError):
            await reply.wait(60)
        tasks.cancel_scope.cancel()
    assert (context.vitals.recorded, context.vitals.stale_reports) == (1, 0)


async def test_c33_groups_that_are_gone_are_made_anew_without_haste(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dispatched(context)
    reads = 0
    real = context.streams.reports.read

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return await real(*args, **more)

    monkeypatch.setattr(context.streams.reports, "read", counted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).serve, anyio.Event())
        await wait_for(lambda: reads > 1, 60, "it reads")
        await hand.call("FLUSHDB")

        async def there() -> bool:
            if not await hand.call("EXISTS", keys.reports(Q)):
                return False
            groups = await hand.call("XINFO GROUPS", keys.reports(Q))
            return bool(groups)

        await wait_for(there, 60, "the group is there again")  # the store knows of the queue
        tasks.cancel_scope.cancel()
    assert reads < 20


async def test_c33_a_queue_whose_name_redis_lost_is_still_read(
    context: Context, hand: HandWorker
) -> None:
    """Its worker has yet to report, and nobody publishes to it that would make it known again."""
    await own_all(context.db)
    await claimed(context.db, queue="quiet")
    for queue in (Q, "quiet", "forgotten"):
        await context.streams.queues.announce(queue)
    found = ReportQueues(context)
    await found.find()
    await hand.call("FLUSHDB")
    await context.streams.queues.announce(Q)
    found.look_again()
    await found.find()
    assert found.names == [Q, "quiet"]
    assert await context.streams.queues.names() == {Q, "quiet"}


async def test_a_queue_that_this_node_has_just_published_to_is_read_soon(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_queues, "_EVERY_S", 3_600.0)
    await own_all(context.db)
    await context.streams.queues.announce(Q)
    one = ReportQueues(context)
    await one.find()
    await context.streams.queues.announce("new")

    async def read() -> bool:
        await one.find()
        return one.names == [Q, "new"]

    await wait_for(read, 60, "it is read")


async def test_queues_that_another_node_forgets_are_no_trouble(
    context: Context, hand: HandWorker, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = Streams(redis_url, "node-b", 5.0)
    queues = [f"idle-{number:03}" for number in range(150)]
    for queue in queues:
        await context.streams.queues.announce(queue)
    reading = Recorder(context)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reading.serve, anyio.Event())
        await wait_for(lambda: len(reading._queues.names) == 150, 60, "it reads of all of them")
        for queue in queues:
            assert await other.queues.forget(queue)
        await dispatched(context)
        (taken,) = await hand.read()
        await hand.report(taken)
        await hand.nothing_left()
        await wait_for(lambda: reading._queues.names == [Q], 60, "it reads of those that are left")
        tasks.cancel_scope.cancel()
    assert await other.queues.names() == {Q}
    await other.close()
    assert await hand.call("KEYS", "duly:{idle*") == []
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == []


async def test_a_gain_of_slots_brings_what_a_dead_node_had_read(
    fresh_database: str, redis_url: str, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_queues, "_ORPHAN_IDLE_MS", 3_600_000)
    monkeypatch.setattr(report_queues, "_EVERY_S", 3_600.0)
    async with open_context(fresh_database, redis_url, lease_ttl_s=1.0) as context:
        await dispatched(context, 3)
        for taken in await hand.read(3):
            await hand.report(taken)
        read = await hand.call(
            "XREADGROUP", "GROUP", keys.NODES_GROUP, "dead", "STREAMS", keys.reports(Q), ">"
        )
        assert len(read[0][1]) == 3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Recorder(context).serve, anyio.Event())
            await anyio.sleep(1.5)  # the dead node's reports are as old as a take-over makes them
            assert await completed(context) == 0
            context.boxes.recorder.offer(Ownership({1: 1}, 0.0))
            await hand.nothing_left()
            tasks.cancel_scope.cancel()
        assert await completed(context) == 3


async def test_trouble_does_not_make_it_forget_what_a_gain_brings(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    await context.streams.queues.announce(Q)
    idles: list[int] = []

    async def take_over(_: str, idle_ms: int) -> None:
        idles.append(idle_ms)
        if len(idles) == 1:
            raise TimeoutError

    monkeypatch.setattr(context.streams.reports, "take_over", take_over)
    gaining = ReportQueues(context)
    gaining.note_ownership(Ownership({1: 1}, 0.0))
    with pytest.raises(TimeoutError):
        await gaining.find()
    for _ in range(2):
        gaining.look_again()
        await gaining.find()
    assert idles == [2000, 2000, 10_000]


async def test_unreadable_reports_are_told_together_and_not_often(
    context: Context, hand: HandWorker, caplog: pytest.LogCaptureFixture
) -> None:
    one = Recorder(context)
    for number in range(50):
        await one._handle([Report(Q, b"1-1", {b"id": b"%d" % number})] * 4)
    one._tell_unreadable()
    await one._handle([Report("other", b"1-1", {})])
    one._tell_unreadable()  # too soon
    start = "200 unreadable report(s) dropped, of queue(s) default; the first: "
    assert caplog.messages == [start + "id: missing or not a UUID"]
    one._tell_at = 0.0
    one._tell_unreadable()
    assert caplog.messages[1].startswith("1 unreadable report(s) dropped, of queue(s) other")


async def test_while_no_queue_is_known_the_store_is_asked_only_now_and_then(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    away = True

    async def running(*_: Any) -> list[str]:
        nonlocal asked
        asked += 1
        if away:
            raise StoreUnavailableError("away")
        return []

    monkeypatch.setattr(report_queues, "running_queues", running)
    one = ReportQueues(context)

    async def look(times: int) -> int:
        before = asked
        for _ in range(times):
            one.look_again()
            await one.find()
        return asked - before

    assert await look(3) == 3
    away = False
    assert await look(5) == 1
