"""Handlers that run in processes of their own."""

import os
from pathlib import Path
from typing import Any

import cpu_handlers
import msgspec
import psutil
import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Worker

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def make(node: FakeNode, **options: Any) -> Worker:
    worker = Worker(node.url, id="w1", processes=2, **options)
    for name in ("where", "fail", "spin"):
        worker.task(name, process=True)(getattr(cpu_handlers, name))
    return worker


async def test_it_runs_elsewhere_with_its_payload_and_context(node: FakeNode) -> None:
    async with running(make(node)):
        task_id = await node.dispatch(
            "where", '{"n": 5}', attempt="3", timeout="60", traceparent=TRACE
        )
        (report,) = await node.wait_reports(1)
    assert report.outcome == "completed"
    assert report.value["pid"] != os.getpid()
    assert (report.value["n"], report.value["id"], report.value["attempt"]) == (5, task_id, 3)
    assert report.value["headers"]["Duly-Fencing-Token"] == "1"
    assert report.value["state"] is None
    assert report.value["trace"].startswith(TRACE[:35])
    assert 0 < report.value["left_s"] <= 60


@pytest.mark.parametrize(
    ("how", "outcome", "kind", "retry"),
    [
        ("fail", "failed", "Fail", "0"),
        ("other", "failed", "ValueError", "1"),
        ("unsendable", "failed", "RemoteError", "1"),
        ("die", "failed", "BrokenWorkerProcess", "1"),
    ],
)
async def test_what_it_raises_counts_as_anywhere(
    node: FakeNode, how: str, outcome: str, kind: str, retry: str
) -> None:
    async with running(make(node)):
        await node.dispatch("fail", msgspec.json.encode(how))
        (report,) = await node.wait_reports(1)
    assert (report.outcome, report.value["type"], report.retry) == (outcome, kind, retry)
    if how != "die":  # where it was raised is told
        text = report.value["traceback"] + report.value["message"]
        assert "cpu_handlers.py" in text


async def test_a_snooze_is_a_snooze_and_a_retry_keeps_its_delay(node: FakeNode) -> None:
    for how, outcome in (("snooze", "snoozed"), ("retry", "failed")):
        async with running(make(node)):
            await node.dispatch("fail", msgspec.json.encode(how))
            *_, report = await node.wait_reports(1 if how == "snooze" else 2)
        assert (report.outcome, float(report.delay)) == (outcome, 7)


@pytest.mark.parametrize("how", ["cancel", "timeout", "stop"])
async def test_an_attempt_that_is_over_is_killed(node: FakeNode, tmp_path: Path, how: str) -> None:
    pid_file = tmp_path / "pid"
    worker = make(node, drain_timeout_s=0)
    async with running(worker):
        await until(lambda: node.listening(), "it listens")
        await node.dispatch("where", '{"n": 0}')  # the process that then is there is used again
        await node.wait_reports(1)
        timeout = "5" if how == "timeout" else "300"
        task_id = await node.dispatch("spin", msgspec.json.encode(str(pid_file)), timeout=timeout)
        await until(lambda: pid_file.exists() and bool(pid_file.read_text()), "it runs")
        pid = int(pid_file.read_text())
        if how == "cancel":
            await node.call("PUBLISH", "duly:control:w1", f'{{"cancel": "{task_id}", "token": 1}}')
        elif how == "stop":
            worker.stop()
        await until(lambda: not psutil.pid_exists(pid), "it is gone")
        await node.empty()
    _, *reports = await node.reports()
    wanted = {"cancel": [], "timeout": ["failed"], "stop": ["snoozed"]}[how]
    assert [report.outcome for report in reports] == wanted


async def test_what_cannot_be_found_from_another_process_is_refused(node: FakeNode) -> None:
    worker = Worker(node.url)

    def here(ctx: Context) -> None: ...

    async def later(ctx: Context) -> None: ...

    for nowhere in (here, lambda ctx: None):
        with pytest.raises(TypeError, match="define it in a module"):
            worker.task("here", process=True)(nowhere)
    assert cpu_handlers.worker.types == ["where"]  # as a decorator, in a module
    with pytest.raises(TypeError, match="is async"):
        worker.task("later", process=True)(later)
    with pytest.raises(ValueError, match="processes is 1 to"):
        Worker(node.url, processes=0)
