"""Commands that a worker runs: their ends reach the nodes, and nothing of them stays behind."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from commands import Followed
from waiting import wait_for
from worker_rig import FakeNode, running

from duly.contrib import shell
from duly.nodes.worker import Worker
from duly.storage import keys

WAIT_S = 60.0
PROGRAM = """
import sys
import duly
from duly.contrib import shell

worker = duly.Worker(sys.argv[1], id="w1", drain_timeout_s=0)
worker.task("shell")(shell.handler())
worker.run()
"""


def shell_worker(node: FakeNode) -> Worker:
    worker = Worker(node.url, id="w1")
    worker.task("shell")(shell.handler())
    return worker


def payload(command: str) -> str:
    return json.dumps({"command": command})


async def one_report(node: FakeNode) -> tuple[str, Any]:
    await wait_for(node.reports, WAIT_S, "a report")
    (report,) = await node.reports()
    return report.outcome, report.value


async def test_a_worker_has_no_such_handler_unless_it_registers_it(node: FakeNode) -> None:
    assert Worker(node.url).types == []


async def test_outputs_come_as_the_result(node: FakeNode) -> None:
    async with running(shell_worker(node)):
        await node.dispatch("shell", payload("echo hello"))
        assert await one_report(node) == (
            "completed",
            {"stdout": "hello\n", "stderr": "", "stdout_bytes": 6, "stderr_bytes": 0},
        )


async def test_a_failure_comes_with_its_reason_and_may_be_tried_again(node: FakeNode) -> None:
    async with running(shell_worker(node)):
        await node.dispatch("shell", payload("echo no such disk >&2; exit 2"))
        await wait_for(node.reports, WAIT_S, "a report")
        (report,) = await node.reports()
    assert (report.outcome, report.retry) == ("failed", "1")
    assert report.value["type"] == "CommandFailedError"
    assert report.value["message"] == "exit code 2\nno such disk"


async def test_the_end_of_its_time_ends_the_whole_group(node: FakeNode, tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    async with running(shell_worker(node)):
        await node.dispatch("shell", payload(followed.text), timeout="1")
        outcome, error = await one_report(node)
        await followed.gone()
    assert (outcome, error["type"]) == ("failed", "timed_out")


async def test_a_cancellation_ends_the_whole_group(node: FakeNode, tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    async with running(shell_worker(node)):
        task_id = await node.dispatch("shell", payload(followed.text))
        await followed.group()
        await wait_for(node.listening, WAIT_S, "the worker to listen")
        await node.call("PUBLISH", keys.control("w1"), json.dumps({"cancel": task_id, "token": 1}))
        await followed.gone()
        await node.empty()
    assert await node.reports() == []


async def test_a_worker_that_is_stopped_leaves_no_process_behind(
    node: FakeNode, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    stubborn = Followed(tmp_path, before="trap '' TERM;")
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), node.url)
    try:
        await node.dispatch("shell", payload(stubborn.text))
        await stubborn.group()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
        await stubborn.gone()
        await wait_for(node.reports, WAIT_S, "a report")
        (report,) = await node.reports()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert report.outcome == "snoozed"
