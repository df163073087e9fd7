"""The reaper by itself: what it makes of odd workers, and that it notices lost data on every node."""

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import anyio
import pytest
from context_rig import open_context
from hand_worker import HandWorker
from redis.exceptions import ResponseError
from store_rig import NOW, claimed, outcomes, own_all, query, statuses
from waiting import wait_for

from duly.actors import old_claims, reaper
from duly.actors.context import Context
from duly.actors.messages import Capacity, Outcomes, Ownership
from duly.actors.old_claims import OldClaims
from duly.actors.reaper import Reaper
from duly.actors.recorder import Recorder
from duly.actors.turns import Turns
from duly.storage import keys, slots
from duly.storage.errors import StoreUnavailableError
from duly.storage.slots import RunningRow
from duly.storage.stream_facts import Crew, Held
from duly.storage.streams import Streams

Q = "default"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "duly.reaper"]


class Quarters(Turns):
    """A quarter of all slots at a time, however long they take."""

    def __init__(self, most_s: float, most_turns: int) -> None:
        super().__init__(most_s, most_turns)
        self._count = slots.SLOTS // 4

    def took(self, slots: Sequence[int], seconds: float) -> None:
        super().took(slots, self._most_s / 2)


@pytest.fixture
async def hand(redis_url: str) -> AsyncIterator[HandWorker]:
    async with HandWorker(redis_url) as worker:
        yield worker


async def test_c33_every_node_notices_that_the_data_were_lost(
    context: Context, fresh_database: str, redis_url: str, hand: HandWorker
) -> None:
    async with open_context(fresh_database, redis_url) as other:
        nodes = [Reaper(context), Reaper(other)]
        for node in nodes * 2:
            await node._check_data()
        assert [node._claims._suspicious_until for node in nodes] == [0.0, 0.0]
        await hand.call("FLUSHDB")
        for node in nodes:
            await node._check_data()
        assert all(node._claims._suspicious_until > context.clock.monotonic() for node in nodes)


async def test_a_gain_takes_the_claims_of_the_owner_before_into_care_at_once(
    context: Context, hand: HandWorker
) -> None:
    left, fresh = await claimed(context.db, 2)
    await query(
        context.db,
        "update tasks set claimed_at = clock_timestamp() - make_interval(secs => $1) where id = $2",
        5, left.id,
    )  # fmt: skip
    await query(context.db, "update tasks set claimed_at = 'infinity' where id = $1", fresh.id)
    node = Reaper(context)
    context.boxes.reaper.offer(Ownership(dict.fromkeys(range(slots.SLOTS), 2), 0.0))
    assert not await node._wait()
    for _ in range(2):
        await node._try_old_claims()
    assert [taken.id for taken in await hand.read()] == [str(left.id)]


@pytest.mark.parametrize(
    ("value", "concurrency"),
    [
        ('{"concurrency": 7, "host": "h"}', 7),
        ('{"concurrency": -3}', 0),
        ('{"pid": 1}', 1),
        ("1", 1),
        ('{"concurrency": "many"}', 1),
        (b"\xff\xfe", 1),
        ("", 1),
    ],
    ids=str,
)
async def test_a_foreign_idea_of_liveness_counts_for_one(
    context: Context, hand: HandWorker, value: str, concurrency: int
) -> None:
    await context.streams.queues.announce(Q)
    await hand.join()
    await hand.call("SET", keys.worker(hand.name), value)
    await Reaper(context)._look_at_workers()
    assert await context.boxes.dispatcher.receive() == Capacity(Q, concurrency)
    context.boxes.dispatcher.handled()


async def test_entries_of_a_dead_worker_that_nobody_can_read_are_dropped(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 0)
    await context.streams.queues.announce(Q)
    for fields in (("id", "x", "token", "1"), ("id", b"\xff"), ("token", "1"), ("a", "b")):
        await hand.call("XADD", keys.tasks(Q), "*", *fields)
    assert len(await hand.read()) == 4
    await Reaper(context)._look_at_workers()
    assert (await hand.sizes())[0] == 0


async def test_a_loss_that_cannot_be_recorded_stays_in_the_stream(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the entry is what tells of it; and nobody is lost twice."""
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 0)
    monkeypatch.setattr(reaper, "_ROUND_S", 0.02)
    await own_all(context.db)
    (task,) = await claimed(context.db)
    await context.streams.publish(Q, [task])
    await hand.take()
    tried = 0

    async def refuse_at_first() -> None:
        nonlocal tried
        for _ in range(2):
            message = await context.boxes.recorder.receive()
            assert isinstance(message, Outcomes)
            tried += 1
            message.reply.fail(StoreUnavailableError("away"))
            context.boxes.recorder.handled()
            assert (await hand.sizes())[0] == 1
        await Recorder(context).serve(anyio.Event())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refuse_at_first)
        tasks.start_soon(Reaper(context).serve, anyio.Event())

        async def recorded() -> bool:
            return await statuses(context.db, [task.id]) == ["pending"]

        await wait_for(recorded, 60, "the loss is recorded")
        await hand.nothing_left()
        tasks.cancel_scope.cancel()
    assert tried == 2
    assert await outcomes(context.db, task.id) == ["lost"]
    assert context.vitals.lost == 1


@pytest.mark.parametrize("name", [b"w\xff\xfe", b"w\0w"], ids=["not UTF-8", "NUL"])
async def test_the_task_of_a_dead_worker_with_an_odd_name_is_lost_and_retried(
    context: Context, redis_url: str, hand: HandWorker, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 0)
    await own_all(context.db)
    (task,) = await claimed(context.db)
    await context.streams.publish(Q, [task])
    await hand.call("XREADGROUP", "GROUP", keys.WORKERS_GROUP, name, "COUNT", 1,
                    "STREAMS", keys.tasks(Q), ">")  # fmt: skip
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).run)
        await Reaper(context)._look_at_workers()
        tasks.cancel_scope.cancel()
    assert await statuses(context.db, [task.id]) == ["pending"]
    assert await outcomes(context.db, task.id) == ["lost"]


@pytest.mark.parametrize("token", ["\u00b2", str(1 << 63), "9" * 50, "-1", "x"])
async def test_an_entry_with_an_impossible_token_is_dropped(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 0)
    await context.streams.queues.announce(Q)
    await hand.call("XADD", keys.tasks(Q), "*", "id", str(uuid4()), "token", token)
    await hand.read()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).run)
        await Reaper(context)._look_at_workers()
        tasks.cancel_scope.cancel()
    assert await hand.call("XLEN", keys.tasks(Q)) == 0


async def test_a_liveness_nested_deeply_counts_for_one(context: Context, hand: HandWorker) -> None:
    await context.streams.queues.announce(Q)
    await hand.join()
    await hand.call("SET", keys.worker(hand.name), "[" * 100_000)
    await Reaper(context)._look_at_workers()
    assert await context.boxes.dispatcher.receive() == Capacity(Q, 1)
    context.boxes.dispatcher.handled()


async def test_c33_a_stream_that_was_made_anew_is_noticed_by_every_node(
    context: Context, fresh_database: str, redis_url: str, hand: HandWorker
) -> None:
    """Even if a worker, of any make, has made its group again within the second."""
    async with open_context(fresh_database, redis_url) as other:
        await context.streams.queues.announce(Q)
        nodes = [Reaper(context), Reaper(other)]
        for node in nodes * 2:
            await node._look_at_workers()
        assert [node._claims._suspicious_until for node in nodes] == [0.0, 0.0]
        await hand.call("DEL", keys.tasks(Q))
        await hand.call("XGROUP", "CREATE", keys.tasks(Q), keys.WORKERS_GROUP, "0", "MKSTREAM")
        for node in nodes:
            await node._look_at_workers()
        assert all(node._claims._suspicious_until > context.clock.monotonic() for node in nodes)


async def test_nobody_is_taken_for_dead_soon_after_redis_was_in_trouble(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the living could not show that they live."""
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 50)
    monkeypatch.setattr(reaper, "_ROUND_S", 0.01)
    await own_all(context.db)
    (task,) = await claimed(context.db)
    await context.streams.publish(Q, [task])
    await hand.take()
    await anyio.sleep(0.1)  # its liveness, which it never showed, would have run out
    failures = 0

    async def fail() -> tuple[bytes, bytes | None]:
        nonlocal failures
        failures += 1
        raise ConnectionError("away")

    data_mark = context.streams.data_mark
    monkeypatch.setattr(context.streams, "data_mark", fail)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Recorder(context).run)
        tasks.start_soon(Reaper(context).serve, anyio.Event())
        await wait_for(lambda: failures > 2, 60, "it fails")
        assert "looking after workers" in context.vitals.redis.now
        monkeypatch.setattr(reaper, "_ttl_s", lambda: 1000.0)
        seen = failures
        await wait_for(lambda: failures > seen, 60, "it fails once more")
        monkeypatch.setattr(context.streams, "data_mark", data_mark)
        await wait_for(lambda: not context.vitals.redis.now, 60, "it works again")
        await wait_for(lambda: context.boxes.dispatcher.depth > 3, 60, "it looked at the workers")
        tasks.cancel_scope.cancel()
    assert context.vitals.lost == 0
    assert await statuses(context.db, [task.id]) == ["running"]


async def test_trouble_with_old_claims_alone_is_said_once(
    context: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full Redis can be read, so that the look at workers works all the while."""
    caplog.set_level("INFO", "duly.reaper")
    monkeypatch.setattr(reaper, "_ROUND_S", 0.01)
    monkeypatch.setattr(old_claims, "_EVERY_S", 0.03)
    trouble: list[Exception] = [ResponseError("OOM")] * 3 + [StoreUnavailableError("away")] * 3
    running_since = slots.running_since

    async def read(*args: Any) -> list[RunningRow]:
        if trouble:
            raise trouble.pop(0)
        return await running_since(*args)

    monkeypatch.setattr(slots, "running_since", read)
    await own_all(context.db)
    context.boxes.reaper.offer(Ownership(dict.fromkeys(range(slots.SLOTS), 1), 1e12))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Reaper(context).serve, anyio.Event())
        await wait_for(lambda: "reading running tasks works" in caplog.text, 60, "it works again")
        tasks.cancel_scope.cancel()
    assert [one.getMessage() for one in caplog.records] == [
        "restoring vanished tasks fails, trying on: OOM",
        "reading running tasks fails, trying on: away",
        "restoring vanished tasks works again after 3 failures",
        "reading running tasks works again after 3 failures",
    ]
    assert not context.vitals.redis.now


async def test_old_claims_that_are_looked_at_in_turns_are_all_restored(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where looks take long: what was absent at one turn is known at the next."""
    asked: list[int] = []
    running_since = slots.running_since

    async def read(db: Any, some: list[int], *args: Any) -> list[RunningRow]:
        asked.append(len(some))
        return await running_since(db, some, *args)

    monkeypatch.setattr(slots, "running_since", read)
    monkeypatch.setattr(old_claims, "Turns", Quarters)
    tasks = await claimed(context.db, 40)
    node = Reaper(context)
    context.boxes.reaper.offer(Ownership(dict.fromkeys(range(slots.SLOTS), 1), 0.0))
    assert not await node._wait()
    await node._try_old_claims()
    assert asked == [256]  # of slots that were just gained, all at once
    monkeypatch.setattr(OldClaims, "hurrying", False)
    asked.clear()
    for _ in range(7):
        await node._try_old_claims()
    assert asked == [64] * 7
    assert {taken.id for taken in await hand.read(len(tasks))} == {str(task.id) for task in tasks}


async def test_nobody_is_taken_for_dead_by_an_answer_that_took_long(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may have stood still for longer than a liveness key lives."""
    monkeypatch.setattr(reaper, "_STALL_S", 0.05)
    await own_all(context.db)
    await context.streams.publish(Q, await claimed(context.db))
    await hand.take()
    crew, suspects = context.streams.crews.of, list[str]()

    async def slow(queue: str) -> Crew:
        await anyio.sleep(0.1)
        return await crew(queue)

    async def held_by(_: str, consumer: str, *__: int) -> list[Held]:
        suspects.append(consumer)
        return []

    monkeypatch.setattr(context.streams.crews, "of", slow)
    monkeypatch.setattr(context.streams.crews, "held_by", held_by)
    looking = Reaper(context)
    looking._trusted_from = 0.0
    await looking._look_at_workers()
    assert suspects == []


async def test_more_workers_than_connections_are_looked_at(
    context: Context, hand: HandWorker
) -> None:
    await context.streams.queues.announce(Q)
    for number in range(300):
        words = ("CREATECONSUMER", keys.tasks(Q), keys.WORKERS_GROUP, f"w{number}")
        await hand.call("XGROUP", *words)
        await hand.call("SET", keys.worker(f"w{number}"), '{"concurrency": 2}')
    await Reaper(context)._look_at_workers()
    assert await context.boxes.dispatcher.receive() == Capacity(Q, 600)
    context.boxes.dispatcher.handled()


async def test_a_queue_without_tasks_and_workers_is_forgotten_after_a_while(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Reaper(context)
    await context.streams.queues.announce(Q)
    await context.streams.queues.announce("used")
    await hand.call("XGROUP", "CREATECONSUMER", keys.tasks("used"), keys.WORKERS_GROUP, "w")
    await hand.call("SET", keys.worker("w"), "{}")
    for _ in range(3):
        await looking._look_at_workers()
    assert await context.streams.queues.names() == {Q, "used"}
    monkeypatch.setattr(reaper, "_FORGET_QUEUE_S", 0.0)
    await looking._look_at_workers()
    assert await context.streams.queues.names() == {"used"}


async def test_a_queue_that_another_node_forgot_begins_anew(
    context: Context, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "_FORGET_QUEUE_S", 0.2)
    looking = Reaper(context)
    await context.streams.queues.announce(Q)
    await looking._look_at_workers()
    await hand.call("SREM", keys.QUEUES, Q)
    await anyio.sleep(0.3)
    await looking._look_at_workers()
    await hand.call("SADD", keys.QUEUES, Q)
    await looking._look_at_workers()
    assert await context.streams.queues.names() == {Q}


async def test_a_queue_whose_name_was_lost_is_announced_when_something_runs_in_it(
    context: Context, hand: HandWorker
) -> None:
    await own_all(context.db)
    (task,) = await claimed(context.db)
    await context.streams.publish(Q, [task])
    looking = Reaper(context)
    await looking._look_at_workers()
    await hand.call("DEL", keys.QUEUES)
    await looking._look_at_workers()
    row = RunningRow(task.id, task.token, Q, NOW, 300.0, "node-a")
    await looking._claims._look_at([row], looking._known)
    assert await context.streams.queues.names() == {Q}


async def test_streams_that_are_lost_together_are_told_in_one_line(
    context: Context, hand: HandWorker, caplog: pytest.LogCaptureFixture
) -> None:
    queues = [f"q{number:02}" for number in range(20)]
    looking = Reaper(context)
    for again in (False, True):
        for queue in queues:
            await context.streams.queues.announce(queue)
        await looking._look_at_workers()
        assert len(told(caplog)) == again
        if not again:
            await hand.call("DEL", *map(keys.tasks, queues))
    start = "20 stream(s) lost, so looking at every running task: "
    assert told(caplog) == [start + "queues q00, q01, q02, q03, q04 and 15 more"]


async def test_queues_that_another_node_forgets_in_the_middle_of_a_round_are_not_lost(
    context: Context, hand: HandWorker, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = Streams(redis_url, "node-b", 5.0)
    queues = [f"idle-{number:02}" for number in range(20)]
    for queue in queues:
        await context.streams.queues.announce(queue)
    looking = Reaper(context)
    await looking._look_at_workers()
    known = context.streams.queues.names

    async def and_then_they_go() -> set[str]:
        before = await known()
        for queue in queues:
            assert await other.queues.forget(queue)
        return before

    context.streams.queues.names = and_then_they_go  # type: ignore[method-assign]
    await looking._look_at_workers()
    await other.close()
    assert told(caplog) == []
    assert await hand.call("KEYS", "duly:{idle*") == []
    assert await known() == set()
    assert not looking._marks


async def test_what_is_published_again_in_a_round_is_told_in_one_line(
    context: Context,
    hand: HandWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(old_claims, "_ROWS", 3)  # a round of many pages
    monkeypatch.setattr(reaper, "_ROUND_S", 0.02)
    queues = [f"q{number:02}" for number in range(10)]
    for queue in queues:
        await claimed(context.db, 2, queue=queue)
    await query(context.db, "update tasks set claimed_at = clock_timestamp() - interval '1 hour'")
    context.boxes.reaper.offer(Ownership(dict.fromkeys(range(slots.SLOTS), 2), 0.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Reaper(context).serve, anyio.Event())
        await wait_for(lambda: told(caplog), 60, "something is told")
        tasks.cancel_scope.cancel()
    start = "published 20 task(s) again that were in no stream: "
    assert told(caplog) == [start + "queues q00, q01, q02, q03, q04 and 5 more"]
    assert context.vitals.republished == 20
