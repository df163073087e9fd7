"""The worker that `duly worker duly.contrib.http` runs: from a dispatched task to its report."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from hostile_server import Got, Hostile, Play, answers, hostile
from processes import Processes
from tracing_rig import tracing
from waiting import wait_for
from worker_rig import FakeNode, Report, running

from duly.contrib import http
from duly.contrib.http.settings import load
from duly.nodes.worker import Worker
from duly.storage import keys

WAIT_S = 60.0
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
ENVIRON = {"DULY_HTTP_ALLOW_NETWORKS": "127.0.0.1/32"}


@pytest.fixture
async def node(redis_url: str) -> AsyncIterator[FakeNode]:
    fake = FakeNode(redis_url)
    yield fake
    await fake.close()


def http_worker(node: FakeNode) -> Worker:
    worker = Worker(node.url, id="w1")
    worker.task(http.TYPE)(http.handler(load(ENVIRON)))
    return worker


async def one_report(node: FakeNode) -> Report:
    (report,) = await node.wait_reports(1)
    return report


def url(server: Hostile) -> str:
    return f"http://127.0.0.1:{server.port}/"


async def test_the_command_delivers(node: FakeNode, redis_url: str, processes: Processes) -> None:
    async with hostile(answers(status="201 Created", body=b"made")) as server:
        env = {"DULY_REDIS_URL": redis_url, "DULY_HTTP_QUEUES": "web", **ENVIRON}
        processes.python("-m", "duly", "worker", "duly.contrib.http", env=env)
        payload = json.dumps({"url": url(server), "json": [1]})
        await node.dispatch("http", payload, queue="web")
        (report,) = await node.wait_reports(1, "web")
    assert report.outcome == "completed"
    assert (report.value["status"], report.value["body"]) == (201, "made")
    assert server.got[0].body == b"[1]"


async def test_a_bad_payload_fails_for_good_and_names_the_field(node: FakeNode) -> None:
    async with running(http_worker(node)):
        await node.dispatch("http", '{"url": "https://example.org", "method": "BREW"}')
        report = await one_report(node)
    assert (report.outcome, report.retry, report.value["type"]) == (
        "failed",
        "0",
        "invalid_payload",
    )
    assert "$.method" in report.value["message"]


async def test_a_wait_that_the_server_asks_for_is_the_delay(node: FakeNode) -> None:
    busy = answers(status="503 Service Unavailable", headers="Retry-After: 90\r\n", body=b"busy")
    async with hostile(busy) as server, running(http_worker(node)):
        await node.dispatch("http", json.dumps({"url": url(server)}))
        report = await one_report(node)
    assert (report.outcome, report.retry, report.delay) == ("failed", "1", "90")
    assert report.value["type"] == "TryAgainError"
    assert report.value["message"] == "503 Service Unavailable: busy"


async def test_a_refusal_fails_for_good(node: FakeNode) -> None:
    async with running(http_worker(node)):
        await node.dispatch("http", '{"url": "http://169.254.169.254/secret?token=s3"}')
        report = await one_report(node)
    assert (report.outcome, report.retry) == ("failed", "0")
    assert report.value["type"] == "RefusedError"
    assert "link-local" in report.value["message"]
    assert "s3" not in json.dumps(report.value)


async def test_a_deadline_beyond_the_worker_s_is_refused(node: FakeNode) -> None:
    async with running(http_worker(node)):
        await node.dispatch("http", '{"url": "http://example.org", "deadline": 301}')
        report = await one_report(node)
    assert (report.outcome, report.retry) == ("failed", "0")
    assert report.value["message"] == "deadline: this worker allows at most 300 s"


def silent(server: Hostile) -> Play:
    async def play(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    return play


async def test_a_cancellation_breaks_the_request_off(node: FakeNode) -> None:
    async with hostile(silent) as server, running(http_worker(node)):
        task_id = await node.dispatch("http", json.dumps({"url": url(server), "deadline": 300}))
        await wait_for(lambda: server.got, WAIT_S, "the request")
        await wait_for(node.listening, WAIT_S, "the worker to listen")
        await node.call("PUBLISH", keys.control("w1"), json.dumps({"cancel": task_id, "token": 1}))
        await server.closed()
        await node.empty()
        assert await node.reports() == []


async def test_the_trace_goes_on_to_the_server(node: FakeNode) -> None:
    async with hostile(answers()) as server, running(http_worker(node)):
        payload = json.dumps({"url": url(server)})
        await node.dispatch("http", payload)
        await node.wait_reports(1)
        await node.dispatch("http", payload, traceparent=PARENT)
        await node.wait_reports(2)
        with tracing() as spans:
            await node.dispatch("http", payload, traceparent=PARENT)
            await node.wait_reports(3)
            span = spans.one("run http").context
    assert span is not None
    assert [got.headers.get("traceparent") for got in server.got] == [
        None,
        PARENT,
        f"00-{TRACE}-{span.span_id:016x}-01",
    ]


async def test_many_requests_at_once(node: FakeNode) -> None:
    async with hostile(answers()) as server, running(http_worker(node)):
        for _ in range(100):
            await node.dispatch("http", json.dumps({"url": url(server)}))
        reports = await node.wait_reports(100)
    assert {report.outcome for report in reports} == {"completed"}
    keys_sent = {got.headers["idempotency-key"] for got in server.got}
    assert len(keys_sent) == 100
