"""A worker as a process of its own: signals, kill -9."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from worker_rig import WAIT_S, FakeNode, until

PROGRAM = """
import asyncio, sys, time
import duly

worker = duly.Worker(sys.argv[1], id="w1", concurrency=5, drain_timeout_s=float(sys.argv[2]))

def begun() -> None:
    with open(sys.argv[3], "a") as file:
        print("begun", file=file)

@worker.task("sleep")
async def sleep(ctx: duly.Context, payload: float) -> str:
    begun()
    await asyncio.sleep(payload)
    return "slept"

@worker.task("block")
def block(ctx: duly.Context, payload: float) -> str:
    begun()
    time.sleep(payload)
    return "blocked"

@worker.task("stubborn")
async def stubborn(ctx: duly.Context) -> None:
    begun()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

worker.run()
print("ended", flush=True)
"""

Start = Callable[[float], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A file to which every handler adds a line."""
    (tmp_path / "begun").touch()
    return tmp_path / "begun"


@pytest.fixture
async def start(node: FakeNode, tmp_path: Path, begun: Path) -> AsyncIterator[Start]:
    """Start a worker process with a drain timeout; wait until it reads."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    processes: list[asyncio.subprocess.Process] = []

    async def start_one(drain_timeout_s: float) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), node.url, str(drain_timeout_s), str(begun),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        await until(node.reading)
        return process

    yield start_one
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the clean end of a process."""
    out, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 0
    assert out == b"ended\n"


async def running(begun: Path, count: int) -> None:
    await until(lambda: begun.read_text().count("begun") == count, f"{count} handlers")


async def test_sigterm_drains(node: FakeNode, start: Start, begun: Path) -> None:
    process = await start(10)
    await node.dispatch("sleep", "0.5")
    await node.dispatch("block", "0.5")
    await running(begun, 2)
    process.send_signal(signal.SIGTERM)
    await ended(process)
    assert sorted(report.value for report in await node.reports()) == ["blocked", "slept"]
    await node.empty()
    assert not await node.alive()


async def test_handlers_that_do_not_end_cannot_keep_the_process(
    node: FakeNode, start: Start, begun: Path
) -> None:
    process = await start(0.2)
    for task_type, payload in (("sleep", "60"), ("block", "60"), ("stubborn", "null")):
        await node.dispatch(task_type, payload)
    await running(begun, 3)
    process.send_signal(signal.SIGTERM)
    await ended(process)
    reports = await node.reports()
    assert [report.outcome for report in reports] == ["snoozed"] * 3
    await node.empty()


async def test_a_second_signal_stops_at_once(node: FakeNode, start: Start, begun: Path) -> None:
    process = await start(600)
    await node.dispatch("sleep", "60")
    await running(begun, 1)
    process.send_signal(signal.SIGINT)

    async def stopping() -> bool:
        return not await node.reading()

    await until(stopping, "it reads no more")
    assert process.returncode is None
    process.send_signal(signal.SIGINT)
    await ended(process)
    assert [report.outcome for report in await node.reports()] == ["snoozed"]


async def test_kill_leaves_the_entry_pending(node: FakeNode, start: Start, begun: Path) -> None:
    process = await start(10)
    await node.dispatch("sleep", "60")
    await running(begun, 1)
    process.kill()
    await process.wait()
    assert await node.reports() == []
    assert await node.pending() == 1
    assert await node.left() == 1
    assert await node.alive()  # until it runs out
