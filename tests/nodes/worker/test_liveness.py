"""The worker's own key, and its id."""

import asyncio
import json
import os
import time

import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker
from duly.storage import keys
from duly.storage.conveyor import Conveyor


async def test_a_worker_shows_that_it_lives_before_it_takes_a_task(node: FakeNode) -> None:
    worker = Worker(node.url, queues=["a", "b"], concurrency=7, id="w1")
    seen: list[bytes | None] = []

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        seen.append(await node.call("GET", keys.worker("w1")))

    await node.dispatch("t", queue="a")
    async with running(worker):
        await node.wait_reports(1, "a")
        ttl_ms = await node.call("PTTL", keys.worker("w1"))
    assert seen[0] is not None
    facts = json.loads(seen[0])
    assert facts == {
        "host": facts["host"],
        "pid": os.getpid(),
        "queues": ["a", "b"],
        "concurrency": 7,
        "running": 0,
        "sdk": facts["sdk"],
    }
    assert facts["sdk"].startswith("duly-python/")
    assert 0 < ttl_ms <= keys.LIVENESS_TTL_MS


async def test_the_key_is_renewed_and_goes_at_a_clean_stop(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_EVERY_S", 0.02)
    worker = Worker(node.url, id="w1")
    go_on = asyncio.Event()

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        await go_on.wait()

    async def shows_one_running() -> bool:
        value = await node.call("GET", keys.worker("w1"))
        return value is not None and json.loads(value)["running"] == 1

    async with running(worker):
        await node.dispatch("t")
        await until(shows_one_running)
        await node.call("DEL", keys.worker("w1"))
        await until(shows_one_running)
        go_on.set()
    assert await node.call("GET", keys.worker("w1")) is None


def test_c27_two_lost_heartbeats_are_borne() -> None:
    """Renewed at most every third of its life, however late the second of two comes."""
    assert 3 * keys.LIVENESS_EVERY_S * 1000 <= keys.LIVENESS_TTL_MS


async def test_c27_a_worker_that_loses_two_heartbeats_of_three_stays_alive(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_EVERY_S", 0.6)
    monkeypatch.setattr(keys, "LIVENESS_TTL_MS", 3_600)  # twice what two lost ones need
    beat, tries, lasting = Conveyor.beat, 0, asyncio.Event()

    async def one_of_three(self: Conveyor, value: bytes) -> None:
        nonlocal tries
        tries += 1
        if tries > 9:
            lasting.set()
        if tries % 3 != 1:
            raise ConnectionError("lost on its way")
        await beat(self, value)

    monkeypatch.setattr(Conveyor, "beat", one_of_three)
    async with running(Worker(node.url, id="w1")):

        async def over() -> bool:
            assert tries < 2 or await node.call("EXISTS", keys.worker("w1"))
            return lasting.is_set()

        await until(over)


async def test_a_blocked_event_loop_is_logged_once(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_EVERY_S", 0.02)
    monkeypatch.setattr("duly.nodes.worker.liveness.STALL_S", 1.0)
    worker = Worker(node.url)

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        time.sleep(1.5)  # noqa: ASYNC251 - the point of the test

    def logged() -> bool:
        return any("event loop was blocked" in m for m in caplog.messages)

    async with running(worker):
        for count in range(1, 20):  # a block that falls into the renewal itself is not measured
            await node.dispatch("t")
            await node.wait_reports(count)
            await asyncio.sleep(0.1)  # let the timer that was held up have its turn
            if logged():
                break
    assert len([m for m in caplog.messages if "event loop was blocked" in m]) == 1


async def test_a_second_life_under_one_id_reports_what_the_first_left(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    await node.call("XGROUP", "CREATE", keys.tasks("default"), "workers", "0", "MKSTREAM")
    maybe = await node.dispatch("t", token=3)
    never = await node.dispatch("t", token=4, confirm="1")
    await node.call("XREADGROUP", "GROUP", "workers", "w1", "STREAMS", keys.tasks("default"), ">")
    await node.call("SET", keys.worker("w1"), '{"pid":1}')
    worker = Worker(node.url, id="w1")
    ran: list[str] = []
    worker.task("t")(lambda ctx: ran.append(ctx.id))
    async with running(worker):
        reports = {report.id: report for report in await node.wait_reports(2)}
        await node.empty()
    assert ran == []
    assert (reports[maybe].outcome, reports[maybe].retry) == ("failed", "1")
    assert (reports[never].outcome, reports[never].retry) == ("failed", "0")
    assert reports[maybe].value["type"] == "worker_lost"
    assert any("there is a worker of the same id" in message for message in caplog.messages)


def test_ids_are_made_up_unless_given() -> None:
    first, second = Worker("redis://h"), Worker("redis://h")
    assert first.id == first.id
    assert first.id != second.id
    assert str(os.getpid()) in first.id
    assert Worker("redis://h", id="w1").id == "w1"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"queues": "default"}, TypeError, "list of names"),
        ({"queues": []}, ValueError, "at least one queue"),
        ({"queues": ["a b"]}, ValueError, "queue 'a b'"),
        ({"queues": ["a/.."]}, ValueError, "queue 'a/..'"),
        ({"queues": [1]}, TypeError, "a queue is text"),
        ({"concurrency": 0}, ValueError, "concurrency is 1 to"),
        ({"id": "a{b}"}, ValueError, "worker id"),
        ({"api": "localhost:8080"}, ValueError, "http://"),
        ({"drain_timeout_s": -1}, ValueError, "drain_timeout_s"),
    ],
)
def test_wrong_settings_are_named(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Worker("redis://h", **options)  # type: ignore[arg-type]  # the point of the test


def test_a_wrong_url_and_a_wrong_type_are_named() -> None:
    with pytest.raises(ValueError, match="redis_url"):
        Worker("localhost")
    with pytest.raises(ValueError, match=r"redis_url must be .*'decode_responses'.* db, username"):
        Worker("redis://h/0?decode_responses=true")
    with pytest.raises(ValueError, match="task type"):
        Worker("redis://h").task("has space")
