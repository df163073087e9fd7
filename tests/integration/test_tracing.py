"""From a submission to the end of its task in one trace: client, node and worker."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hand_worker import HandWorker
from node_rig import RunningNode
from opentelemetry.trace import StatusCode
from tracing_rig import Spans, context_of, parent_of, tracing
from waiting import wait_for
from worker_rig import running

from duly.nodes.worker import Context, Worker
from duly.storage import trace_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GOOD = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def spans() -> Iterator[Spans]:
    with tracing() as found:
        yield found


async def ended(node: RunningNode, task_id: Any) -> Any:
    async def over() -> Any:
        task = await node.client.get(task_id)
        return task if task.status in ("completed", "failed") else None

    return await wait_for(over, 60, "the task has ended")


async def test_submit_fire_and_run_are_one_trace(
    node: RunningNode, redis_url: str, spans: Spans
) -> None:
    worker = Worker(redis_url)

    @worker.task("t")
    async def handle(ctx: Context) -> None:
        with spans.tracer.start_as_current_span("what the handler does"):
            pass

    with spans.tracer.start_as_current_span("the program"):
        task = await node.client.submit("t")
    async with running(worker):
        await ended(node, task.id)
    await wait_for(lambda: spans.named("fire t"), 60, "the node knows that it is out")
    chain = [
        spans.one(name)
        for name in ("the program", "submit t", "fire t", "run t", "what the handler does")
    ]
    assert parent_of(chain[0]) is None
    for above, below in itertools.pairwise(chain):
        assert parent_of(below) == context_of(above)
    fired, ran = chain[2], chain[3]
    assert fired.attributes is not None
    assert fired.attributes["duly.task_id"] == str(task.id)
    assert fired.attributes["duly.slot"] == task.slot
    assert fired.attributes["duly.node"] == node.context.node_id
    assert fired.start_time is not None
    assert fired.end_time is not None
    assert fired.start_time <= fired.end_time
    assert ran.attributes is not None
    assert ran.attributes["duly.outcome"] == "completed"
    assert ran.attributes["duly.token"] == fired.attributes["duly.token"]


async def test_each_attempt_is_a_part_of_the_trace(
    node: RunningNode, redis_url: str, spans: Spans
) -> None:
    worker = Worker(redis_url)

    @worker.task("t")
    def handle(ctx: Context) -> None:  # in a thread
        if ctx.attempt == 1:
            raise LookupError("not yet")
        spans.tracer.start_span("in the thread").end()

    task = await node.client.submit("t", backoff={"kind": "fixed", "delay": 0})
    async with running(worker):
        await ended(node, task.id)
    await wait_for(lambda: len(spans.named("fire t")) == 2, 60, "the node knows that both are out")
    submitted = context_of(spans.one("submit t"))
    assert [parent_of(span) for span in spans.named("fire t")] == [submitted] * 2
    first, second = spans.named("run t")
    assert [parent_of(first), parent_of(second)] == [context_of(s) for s in spans.named("fire t")]
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "LookupError: not yet"
    assert second.status.status_code is StatusCode.UNSET
    assert parent_of(spans.one("in the thread")) == context_of(second)


async def test_a_batch_is_submitted_in_one_span(
    node: RunningNode, redis_url: str, spans: Spans
) -> None:
    await node.client.submit_batch([{"type": "t"}, {"type": "t"}])
    async with HandWorker(redis_url) as hand:
        await hand.live()
        for _ in range(2):
            await hand.take()
    await wait_for(lambda: len(spans.named("fire t")) == 2, 60, "the node knows that they are out")
    submitted = context_of(spans.one("submit a batch"))
    assert [parent_of(span) for span in spans.named("fire t")] == [submitted] * 2


async def test_any_client_may_send_the_header(node: RunningNode, redis_url: str) -> None:
    """Without an SDK that is set up the header goes to the worker as it came."""
    async with HandWorker(redis_url) as hand:
        await hand.live()
        headers = {"traceparent": GOOD}
        assert (await node.call("POST", "/v1/tasks", {"type": "t"}, headers)).status == 201
        assert (await hand.take()).fields["traceparent"] == GOOD
        batch = {"tasks": [{"type": "t"}]}
        assert (await node.call("POST", "/v1/tasks/batch", batch, headers)).status == 201
        assert (await hand.take()).fields["traceparent"] == GOOD


async def test_what_is_no_trace_is_ignored(node: RunningNode, redis_url: str) -> None:
    async with HandWorker(redis_url) as hand:
        await hand.live()
        for header in ("nonsense", f"ff{GOOD[2:]}", f"{GOOD}, {GOOD}"):
            answer = await node.call("POST", "/v1/tasks", {"type": "t"}, {"traceparent": header})
            assert answer.status == 201
            assert "traceparent" not in (await hand.take()).fields
        assert (await node.call("POST", "/v1/tasks", {"type": "t"})).status == 201
        assert "traceparent" not in (await hand.take()).fields


async def test_a_schedule_is_in_no_trace(node: RunningNode, redis_url: str, spans: Spans) -> None:
    """It may go on for years; each of its runs is a trace of its own."""
    worker = Worker(redis_url)

    @worker.task("t")
    async def handle(ctx: Context) -> None:
        pass

    await node.client.submit("t", schedule={"every": 1})
    async with running(worker):
        await wait_for(lambda: len(spans.named("run t")) >= 2, 60, "it has run twice")
    assert spans.named("fire t") == []
    assert {parent_of(span) for span in spans.named("run t")} == {None}


async def test_without_opentelemetry_all_goes_on(
    node: RunningNode, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_context, "api", lambda: None)
    worker = Worker(redis_url)

    @worker.task("t")
    async def handle(ctx: Context) -> None:
        pass

    async with running(worker):
        answer = await node.call("POST", "/v1/tasks", {"type": "t"}, {"traceparent": GOOD})
        assert (await ended(node, answer.body["id"])).status == "completed"
        assert (await ended(node, (await node.client.submit("t")).id)).status == "completed"
