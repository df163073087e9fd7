"""Handlers that run in processes of their own."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import cpu_handlers
import msgspec
import psutil
import pytest
from worker_rig import FakeNode, running, until

from duly.nodes.worker import Context, Next, Worker

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

PARENT = (
    '{"id": "0af76519-16cd-43dd-8448-eb211c80319c", "status": "completed", "token": 1,'
    ' "occurrence": "2026-11-30T12:00:00Z", "result": {"rows": 3}}'
)


def make(node: FakeNode, **options: Any) -> Worker:
    worker = Worker(node.url, id="w1", processes=2, **options)
    for name in ("where", "fail", "spin", "call_programs"):
        worker.task(name, process=True)(getattr(cpu_handlers, name))
    return worker


async def test_it_runs_elsewhere_with_its_payload_and_context(node: FakeNode) -> None:
    async with running(make(node)):
        task_id = await node.dispatch(
            "where", '{"n": 5}', attempt="3", timeout="60", traceparent=TRACE, parent=PARENT
        )
        (report,) = await node.wait_reports(1)
    assert report.outcome == "completed"
    assert report.value["pid"] != os.getpid()
    assert (report.value["n"], report.value["id"], report.value["attempt"]) == (5, task_id, 3)
    assert report.value["headers"]["Duly-Fencing-Token"] == "1"
    assert report.value["state"] is None
    assert report.value["parent"] == {"rows": 3}
    assert report.value["trace"].startswith(TRACE[:35])
    assert 0 < report.value["left_s"] <= 60


@pytest.mark.parametrize(
    ("how", "outcome", "kind", "retry"),
    [
        ("fail", "failed", "Fail", "0"),
        ("other", "failed", "ValueError", "1"),
        ("unsendable", "failed", "RemoteError", "1"),
        ("interrupt", "failed", "RemoteError", "1"),
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


async def test_programs_that_it_calls_neither_read_nor_write_the_workers_pipes(
    node: FakeNode,
) -> None:
    async with running(make(node)):
        for count in (1, 2):  # the second one in the same process
            await node.dispatch("call_programs", timeout="60")
            *_, report = await node.wait_reports(count)
            assert (report.outcome, report.value) == ("completed", "done")


SCRIPT = """
import duly

worker = duly.Worker(URL, id="w1", processes=1)

class OwnError(Exception):
    pass

@worker.task("own", process=True)
def own(ctx: duly.Context) -> None:
    raise OwnError("mine")

if __name__ == "__main__":
    worker.run()
"""


async def test_what_a_script_defines_is_told_by_its_name(node: FakeNode, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("URL", repr(node.url)))
    process = await asyncio.create_subprocess_exec(sys.executable, script)
    try:
        await until(lambda: node.alive(), "it is there")
        await node.dispatch("own", timeout="60")
        (report,) = await node.wait_reports(1)
    finally:
        process.terminate()
        await process.wait()
    assert (report.outcome, report.value["type"], report.value["message"]) == (
        "failed", "OwnError", "mine",
    )  # fmt: skip


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


async def test_an_interrupt_raised_in_a_thread_within_middleware_is_only_its_failure(
    node: FakeNode,
) -> None:
    worker = Worker(node.url, id="w1")
    worker.task("fail")(cpu_handlers.fail)

    @worker.middleware
    async def around(ctx: Context, call_next: Next) -> object:
        return await call_next(ctx)

    async with running(worker):
        for count in (1, 2):  # and the worker goes on
            await node.dispatch("fail", '"interrupt"')
            *_, report = await node.wait_reports(count)
            assert (report.outcome, report.value["type"]) == ("failed", "RemoteError")
