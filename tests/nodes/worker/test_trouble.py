"""Redis loses data, hangs, goes away or answers too late: nothing is lost, nothing runs twice."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from private_valkey import PrivateValkey
from redis.exceptions import ConnectionError as RedisConnectionError
from waiting import wait_for
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker
from duly.storage import keys
from duly.storage.conveyor import Conveyor


def make(node: FakeNode, **options: Any) -> tuple[Worker, Counter[str]]:
    worker = Worker(node.url, id="w1", **options)
    ran: Counter[str] = Counter()

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        ran[ctx.id] += 1

    return worker, ran


def complaints(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return len([message for message in caplog.messages if words in message])


async def test_c33_a_lost_group_is_made_again_and_said_once(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    """C33: FLUSHALL (here of one database) takes stream and group; the worker makes the group again from the start."""
    worker, ran = make(node)
    async with running(worker):
        await until(node.reading)
        await node.call("FLUSHDB")
        await node.dispatch("t")
        (report,) = await node.wait_reports(1)
        await node.empty()
        assert await node.alive()
    assert ran == {report.id: 1}
    assert complaints(caplog, "reading tasks fails") == 1


async def test_c33_a_read_that_always_fails_does_not_spin(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    """C33: at least 100 ms (less the jitter) between failures."""
    worker, _ = make(node)
    async with running(worker):
        await until(node.reading)
        await node.call("CONFIG", "RESETSTAT")
        began = time.monotonic()
        await node.call("SET", keys.tasks("default"), "not a stream")
        await until(lambda: complaints(caplog, "reading tasks fails") == 1)
        await asyncio.sleep(0.5)
        stats = await node.redis.info("commandstats")
        failures = stats["cmdstat_xgroup|create"]["calls"]
        assert failures <= 1 + (time.monotonic() - began) / 0.05
        await node.call("DEL", keys.tasks("default"))
        await node.dispatch("t")
        await node.wait_reports(1)
    assert complaints(caplog, "reading tasks fails") == 1


async def served(node: FakeNode) -> None:
    """Wait until tasks of the queue "good" have been run."""
    before = len(await node.reports("good"))
    for count in range(3):
        await node.dispatch("t", queue="good")
        await node.wait_reports(before + count + 1, "good")


async def reported(node: FakeNode) -> str:
    """Wait, for longer than a back-off, for the one report of the queue "bad"; answers whose it is."""

    async def some() -> bool:
        return await node.call("EXISTS", keys.reports("bad")) and bool(await node.reports("bad"))

    await wait_for(some, 60, "the queue is tried again")
    (report,) = await node.reports("bad")
    return report.id


async def test_a_queue_without_a_stream_keeps_no_other_waiting(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    worker, _ = make(node, queues=["bad", "good"])
    async with running(worker):
        await until(node.reading)
        await node.call("SET", keys.tasks("bad"), "not a stream")
        await until(lambda: complaints(caplog, "of queue bad fails") == 1)
        await served(node)
        await node.call("DEL", keys.tasks("bad"))
        task_id = await node.dispatch("t", queue="bad")
        assert await reported(node) == task_id
    assert complaints(caplog, "fails, trying on") == 2


async def test_a_queue_whose_tokens_cannot_be_read_keeps_no_other_waiting(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    worker, ran = make(node, queues=["bad", "good"])
    async with running(worker):
        await until(node.reading)
        await node.call("SET", keys.inflight("bad"), "not a hash")
        task_id = await node.dispatch("t", queue="bad", inflight=None)
        await until(lambda: complaints(caplog, "of queue bad fails") == 1)
        await served(node)
        assert ran[task_id] == 0
        await node.call("HSET", "kept", task_id, "1")
        await node.call("RENAME", "kept", keys.inflight("bad"))
        assert await reported(node) == task_id
    assert ran[task_id] == 1


async def test_a_queue_that_takes_no_reports_keeps_no_other_waiting(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    worker, ran = make(node, queues=["bad", "good"])
    async with running(worker):
        await until(node.reading)
        await node.call("SET", keys.reports("bad"), "not a stream")
        task_id = await node.dispatch("t", queue="bad")
        await until(lambda: complaints(caplog, "of queue bad fails") == 1)
        await served(node)
        await node.call("DEL", keys.reports("bad"))
        assert await reported(node) == task_id
    assert ran[task_id] == 1
    assert complaints(caplog, "fails, trying on") == 1


async def test_a_restart_without_data_is_survived(
    own_node: FakeNode, valkey: PrivateValkey
) -> None:
    worker, ran = make(own_node)
    async with running(worker):
        await until(own_node.reading)
        valkey.stop()
        valkey.start()
        await own_node.dispatch("t")
        (report,) = await own_node.wait_reports(1)
        await own_node.empty()
        await until(own_node.alive)
    assert ran == {report.id: 1}


async def test_a_worker_may_start_before_redis(
    own_node: FakeNode, valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.stop()
    worker, ran = make(own_node)
    async with running(worker):
        await until(lambda: complaints(caplog, "connecting to Redis fails") == 1)
        valkey.start()
        await own_node.dispatch("t")
        await own_node.wait_reports(1)
    assert sum(ran.values()) == 1


async def test_a_worker_that_never_reached_redis_can_be_stopped(
    own_node: FakeNode, valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.stop()
    worker, _ = make(own_node)
    async with running(worker):
        await until(lambda: complaints(caplog, "connecting to Redis fails") == 1)


async def test_outcomes_are_kept_while_redis_is_away(
    own_node: FakeNode, valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(own_node.url, concurrency=5)
    go_on = asyncio.Event()
    started = 0

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        nonlocal started
        started += 1
        await go_on.wait()

    async with running(worker):
        sent = [await own_node.dispatch("t") for _ in range(5)]
        await until(lambda: started == 5)
        valkey.stop()
        go_on.set()
        await until(lambda: complaints(caplog, "reporting outcomes fails") == 1)
        valkey.start()
        reports = await own_node.wait_reports(5)
    assert sorted(report.id for report in reports) == sorted(sent)
    assert complaints(caplog, "reporting outcomes fails") == 1


async def test_a_server_that_hangs_is_waited_out(
    own_node: FakeNode, valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.storage.conveyor.COMMAND_TIMEOUT_S", 0.2)
    monkeypatch.setattr("duly.nodes.worker.reader.BLOCK_MS", 100)
    worker, ran = make(own_node)
    async with running(worker):
        await until(own_node.reading)
        sent = [await own_node.dispatch("t") for _ in range(20)]
        valkey.pause()
        await asyncio.sleep(0.5)  # longer than a read may last
        valkey.resume()
        sent += [await own_node.dispatch("t") for _ in range(20)]
        await own_node.wait_reports(40)
        await own_node.empty()
    assert ran == dict.fromkeys(sent, 1)


async def test_a_report_whose_answer_is_lost_is_sent_again(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Conveyor.report
    lost: list[str] = []

    async def unheard(self: Conveyor, queue: str, items: Any) -> None:
        await report(self, queue, items)
        if not lost:
            lost.append(queue)
            raise RedisConnectionError("the answer is lost")

    monkeypatch.setattr(Conveyor, "report", unheard)
    worker, ran = make(node)
    async with running(worker):
        await node.dispatch("t", token=7)
        reports = await node.wait_reports(2)
        await node.empty()
    assert [(r.id, r.token) for r in reports] == [(reports[0].id, "7")] * 2
    assert list(ran.values()) == [1]


async def test_reading_stops_while_too_many_reports_wait(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.worker.reporter.WAITING_MAX", 10)
    report = Conveyor.report
    refused = asyncio.Event()
    heal = asyncio.Event()

    async def refuse(self: Conveyor, queue: str, items: Any) -> None:
        if not heal.is_set():
            refused.set()
            raise RedisConnectionError("no")
        await report(self, queue, items)

    monkeypatch.setattr(Conveyor, "report", refuse)
    worker, ran = make(node, concurrency=4)
    sent = [await node.dispatch("t") for _ in range(50)]
    async with running(worker):
        await refused.wait()
        await until(lambda: sum(ran.values()) >= 10)
        await asyncio.sleep(0.1)
        assert sum(ran.values()) < 10 + 4
        heal.set()
        await node.wait_reports(50)
        await node.empty()
    assert ran == dict.fromkeys(sent, 1)


async def test_entries_of_a_read_whose_answer_is_lost_are_found(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.worker.reader.AUDIT_EVERY_S", 3_600.0)  # found without it
    read = Conveyor.read
    lost: list[int] = []

    async def unheard(self: Conveyor, queues: Any, count: int, block_ms: int) -> Any:
        found = await read(self, queues, count, block_ms)
        if found and len(lost) < 3:
            lost.append(len(found))
            raise RedisConnectionError("the answer is lost")
        return found

    monkeypatch.setattr(Conveyor, "read", unheard)
    worker, ran = make(node, concurrency=5)
    sent = [await node.dispatch("t") for _ in range(20)]
    async with running(worker):
        await node.wait_reports(20)
        await node.empty()
    assert len(lost) == 3
    assert ran == dict.fromkeys(sent, 1)


async def test_entries_that_nobody_noticed_are_found_by_the_audit(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.worker.reader.AUDIT_EVERY_S", 0.1)
    monkeypatch.setattr("duly.nodes.worker.reader.BLOCK_MS", 50)
    worker, ran = make(node)
    async with running(worker):
        await until(node.reading)
        # As a server does that serves a read after its client has given up: the entry is
        # delivered to w1, and w1 does not know.
        pipe = node.redis.pipeline(transaction=True)
        pipe.hset(keys.inflight("default"), "id1", "1")
        pipe.xadd(
            keys.tasks("default"), {"id": "id1", "token": "1", "type": "t", "due": "1790000000000"}
        )
        pipe.xreadgroup(keys.WORKERS_GROUP, "w1", {keys.tasks("default"): ">"})
        await pipe.execute()
        await node.wait_reports(1)
        await node.empty()
    assert ran == {"id1": 1}


async def test_the_token_check_is_repeated_until_it_is_answered(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    check = Conveyor.tokens
    failures = [RedisConnectionError("no"), RedisConnectionError("no")]

    async def failing(self: Conveyor, queue: str, ids: Any) -> Any:
        if failures:
            raise failures.pop()
        return await check(self, queue, ids)

    monkeypatch.setattr(Conveyor, "tokens", failing)
    worker, ran = make(node)
    async with running(worker):
        await node.dispatch("t")
        await node.wait_reports(1)
    assert sum(ran.values()) == 1
    assert complaints(caplog, "checking tokens fails") == 1


async def test_cancellations_are_heard_again_after_a_broken_connection(node: FakeNode) -> None:
    worker = Worker(node.url, id="w1")

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        await ctx.wait_cancelled()

    async with running(worker):
        await until(node.listening)
        await node.call("CLIENT", "KILL", "TYPE", "pubsub")
        task_id = await node.dispatch("t")
        await until(lambda: _running(node))

        async def cancelled() -> bool:
            # The killed connection may still be counted as a listener: say it until it is heard.
            message = f'{{"cancel":"{task_id}","token":1}}'
            await node.call("PUBLISH", keys.control("w1"), message)
            return not await _running(node)

        await until(cancelled)
        await node.empty()
    assert await node.reports() == []


async def _running(node: FakeNode) -> bool:
    return await node.pending() == 1
