"""A worker between a real server and a fake node: what comes in, what is reported."""

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Fail, Retry, Snooze, Worker
from duly.storage import keys


class Email(msgspec.Struct):
    to: str


def make(node: FakeNode, **options: Any) -> Worker:
    return Worker(node.url, **options)


async def test_a_result_is_reported_with_exactly_the_fields_of_the_contract(node: FakeNode) -> None:
    worker = make(node, id="w1")
    seen: list[Context] = []

    @worker.task("email.send")
    async def send(ctx: Context, payload: Email) -> dict[str, str]:
        seen.append(ctx)
        return {"sent": payload.to}

    before_ms = time.time() * 1000
    async with running(worker):
        sent = await node.dispatch(
            "email.send", '{"to":"a"}', token=7, attempt="2", due="1790000000000.5", timeout="60"
        )
        (report,) = await node.wait_reports(1)
        await node.empty()
    assert report.fields == {
        "id": sent,
        "token": "7",
        "outcome": "completed",
        "result": '{"sent":"a"}',
        "worker": "w1",
        "started": report.started,
        "finished": report.finished,
    }
    assert before_ms <= float(report.started) <= float(report.finished) <= time.time() * 1000
    (ctx,) = seen
    assert (ctx.id, ctx.type, ctx.queue, ctx.token, ctx.attempt, ctx.worker, ctx.cancelled) == (
        (sent, "email.send", "default", 7, 2, "w1", False)
    )
    assert ctx.headers()["Idempotency-Key"] == f"{sent}.1790000000000500"
    assert 0 < ctx.remaining_s <= 60


@pytest.mark.parametrize("plain", [False, True])
async def test_what_a_handler_raises_decides_the_outcome(node: FakeNode, plain: bool) -> None:
    worker = make(node)
    raised: dict[str, BaseException] = {
        "retry": Retry(),
        "retry.delay": Retry(delay=2.5, reason="busy"),
        "snooze": Snooze(30),
        "fail": Fail("no"),
        "bug": LookupError("what"),
        "exit": SystemExit(1),
        "cancel": asyncio.CancelledError(),
    }

    def work(ctx: Context) -> None:
        raise raised[ctx.type]

    async def work_async(ctx: Context) -> None:
        work(ctx)

    for task_type in raised:
        worker.task(task_type)(work if plain else work_async)
    async with running(worker):
        sent = {task_type: await node.dispatch(task_type) for task_type in raised}
        reports = {report.id: report for report in await node.wait_reports(len(raised))}
        await node.empty()
    told = {
        task_type: {
            name: value
            for name, value in reports[task_id].fields.items()
            if name in ("outcome", "retry", "delay")
        }
        for task_type, task_id in sent.items()
    }
    failed = {"outcome": "failed", "retry": "1"}
    assert told == {
        "retry": failed,
        "retry.delay": {**failed, "delay": "2.5"},
        "snooze": {"outcome": "snoozed", "delay": "30"},
        "fail": {"outcome": "failed", "retry": "0"},
        "bug": failed,
        "exit": failed,
        "cancel": failed,
    }
    assert reports[sent["bug"]].value["type"] == "LookupError"
    assert "what" in reports[sent["bug"]].value["traceback"]


async def test_a_payload_that_does_not_fit_fails_for_good(node: FakeNode) -> None:
    worker = make(node)

    @worker.task("t")
    async def handler(ctx: Context, payload: Email) -> None: ...

    async with running(worker):
        await node.dispatch("t", '{"to":1}')
        (report,) = await node.wait_reports(1)
    assert (report.outcome, report.retry) == ("failed", "0")
    assert report.value["type"] == "invalid_payload"
    assert "$.to" in report.value["message"]


async def test_an_async_handler_is_cancelled_at_its_timeout(node: FakeNode) -> None:
    worker = make(node)
    tidied = asyncio.Event()

    @worker.task("t")
    async def handler(ctx: Context) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            assert ctx.cancelled
            tidied.set()
            return "too late"
        return "never"

    async with running(worker):
        await node.dispatch("t", timeout="0.1")
        (report,) = await node.wait_reports(1)
        await node.empty()
    assert tidied.is_set()
    assert (report.outcome, report.retry) == ("failed", "1")
    assert report.value == {"type": "timed_out", "message": "no result within 0.1 s"}
    assert 90 <= float(report.finished) - float(report.started) < 30_000


async def test_a_handler_that_ignores_its_timeout_is_reported_without_it(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.nodes.worker.runner.CANCEL_GRACE_S", 0.1)
    worker = make(node, concurrency=1)
    go_on = asyncio.Event()

    @worker.task("stubborn")
    async def stubborn(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await go_on.wait()

    @worker.task("next")
    async def following(ctx: Context) -> None: ...

    async with running(worker):
        await node.dispatch("stubborn", timeout="0.05")
        (report,) = await node.wait_reports(1)
        assert report.value["type"] == "timed_out"
        await node.dispatch("next")
        await asyncio.sleep(0.1)
        assert len(await node.reports()) == 1  # its slot is still taken
        go_on.set()
        await node.wait_reports(2)
        await node.empty()


async def test_a_plain_handler_is_reported_at_its_timeout_and_keeps_its_slot(
    node: FakeNode,
) -> None:
    worker = make(node, concurrency=1)
    go_on = threading.Event()
    seen_cancelled: list[bool] = []

    @worker.task("slow")
    def slow(ctx: Context) -> str:
        go_on.wait(120)
        seen_cancelled.append(ctx.cancelled)
        return "too late"

    @worker.task("next")
    def following(ctx: Context) -> None: ...

    async with running(worker):
        await node.dispatch("slow", timeout="0.1")
        (report,) = await node.wait_reports(1)
        assert report.value["type"] == "timed_out"
        await node.dispatch("next")
        await asyncio.sleep(0.1)
        assert len(await node.reports()) == 1  # its slot is still taken
        go_on.set()
        reports = await node.wait_reports(2)
        await node.empty()
    assert seen_cancelled == [True]
    assert [report.outcome for report in reports] == ["failed", "completed"]


async def test_plain_handlers_run_side_by_side_in_threads(node: FakeNode) -> None:
    worker = make(node, concurrency=4)
    together = threading.Barrier(4, timeout=60)

    @worker.task("t")
    def handler(ctx: Context) -> str:
        together.wait()
        return threading.current_thread().name

    async with running(worker):
        for _ in range(12):
            await node.dispatch("t")
        reports = await node.wait_reports(12)
    assert {report.outcome for report in reports} == {"completed"}
    assert len({report.result for report in reports}) == 4


async def test_an_unknown_type_is_given_back_with_the_reason_and_logged_once(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(node)
    worker.task("known")(lambda ctx: None)
    async with running(worker):
        due = str(round(time.time() * 1000))
        await node.dispatch("nobody's", due=due)
        await node.dispatch("nobody's", due=due)
        reports = await node.wait_reports(2)
        await node.empty()
    assert {(report.outcome, report.delay) for report in reports} == {("snoozed", "5")}
    why = {"type": "given_back", "message": "no handler for its type"}
    assert [report.value for report in reports] == [why, why]
    assert len([m for m in caplog.messages if "no handler for task type" in m]) == 1


async def test_an_entry_that_breaks_the_protocol_is_dropped(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(node)
    worker.task("t")(lambda ctx: None)
    async with running(worker):
        await node.call("XADD", keys.tasks("default"), "*", "id", "a", "type", "t")
        await node.dispatch("t")
        await node.wait_reports(1)
        await node.empty()
    assert any("field 'token' is missing" in message for message in caplog.messages)


async def test_a_thousand_tasks_end_once_each(node: FakeNode) -> None:
    worker = make(node, queues=["a", "b"], concurrency=20)
    runs: list[str] = []

    @worker.task("t")
    async def handler(ctx: Context, payload: int) -> int:
        runs.append(ctx.id)
        await asyncio.sleep(0)
        return payload

    sent = [await node.dispatch("t", str(number), queue="ab"[number % 2]) for number in range(1000)]
    async with running(worker):
        reports = [report for queue in ("a", "b") for report in await node.wait_reports(500, queue)]
        await node.empty("a")
        await node.empty("b")
    assert sorted(runs) == sorted(sent)
    assert sorted(int(report.result) for report in reports) == list(range(1000))
    assert sorted(report.id for report in reports) == sorted(sent)


async def test_tasks_that_end_together_are_reported_together(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "LIVENESS_EVERY_S", 3_600.0)  # a heartbeat would be counted too
    worker = make(node, concurrency=50)
    go_on = asyncio.Event()
    started = 0

    @worker.task("t")
    async def handler(ctx: Context) -> None:
        nonlocal started
        started += 1
        await go_on.wait()

    async with running(worker):
        for _ in range(50):
            await node.dispatch("t")
        await until(lambda: started == 50)
        await node.call("CONFIG", "RESETSTAT")
        go_on.set()
        await node.wait_reports(50)
        stats = await node.redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1
