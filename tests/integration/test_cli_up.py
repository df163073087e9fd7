"""duly up and duly demo as processes: started, used, stopped, killed, started again."""

import json
import re
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import Child, Processes
from waiting import block_until

from duly.nodes.client import SyncClient
from duly.nodes.embedded.leftovers import wait_ended

SAMPLE = "duly.nodes.cli.sample:worker"
# A test asks for its folder before `processes`: so the processes end before the folder goes.
READY = r"^Ready\. API (http://127\.0\.0\.1:\d+) "
END_S = 60.0


class Up:
    """A running `duly up`."""

    def __init__(self, processes: Processes, data: Path, *more: str) -> None:
        self.data = data
        self.child: Child = processes.python("-m", "duly", "up", "--data", data, *more)
        self.url = self.child.wait_for_line(READY, 120)[1]
        self.family = psutil.Process(self.child.pid).children(recursive=True)

    def child_of(self, command: str) -> psutil.Process:
        """The process of `duly COMMAND`."""
        return next(p for p in self.family if is_duly(p, command))

    def all_gone(self) -> bool:
        """Nothing that it started runs any more."""
        return not wait_ended(self.family, END_S)


def is_duly(process: psutil.Process, command: str) -> bool:
    try:
        line = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return list(line[2:5]) == ["-m", "duly", command]


def test_start_use_and_ctrl_c(seeded_folder: Path, processes: Processes) -> None:
    up = Up(processes, seeded_folder, "--port", "0", "--worker", SAMPLE)
    file = seeded_folder / "urls.json"
    urls: dict[str, Any] = json.loads(file.read_text())
    assert urls.keys() == {"api", "database", "redis"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert urls["api"] == up.url
    with SyncClient(up.url) as client:
        task = client.submit("demo.hello", {"number": 7})
        up.child.wait_for_line(r"worker ran task 7, \d+\.\d ms after its due time")
        block_until(lambda: client.get(task.id).finished_at, 60, "the task is recorded")
    up.child.signal_group(signal.SIGINT)
    assert up.child.wait(END_S) == 0
    assert up.all_gone()
    assert not file.exists()
    assert "Traceback" not in up.child.output
    shown = up.child.output
    for line in (r"PostgreSQL \S+ on", r"Valkey \S+ on", "starting node 1", "Stopping"):
        assert re.search(line, shown, re.MULTILINE), f"{line!r} in {shown}"


def test_kill_9_leaves_nobody_and_the_next_start_has_the_data(
    seeded_folder: Path, processes: Processes
) -> None:
    port = free_port()
    up = Up(processes, seeded_folder, "--port", port, "--worker", SAMPLE)
    with SyncClient(up.url) as client:
        waiting = client.submit("demo.hello", {"number": 1}, delay=3600)
        soon = client.submit("demo.hello", {"number": 2}, delay=2)
    ours = [up.child_of("node"), up.child_of("worker")]
    up.child.kill9()
    again = Up(processes, seeded_folder, "--port", port, "--worker", SAMPLE)
    assert again.url == up.url
    assert not wait_ended(ours, END_S)
    with SyncClient(again.url) as client:
        assert client.get(waiting.id).status == "pending"
        block_until(
            lambda: client.get(soon.id).status == "completed", 60, "the task ran after the restart"
        )
        runs = [run.outcome for run in client.runs(soon.id)]
    assert runs[0] == "completed"
    assert runs.count("completed") == 1
    again.child.signal_group(signal.SIGTERM)
    assert again.child.wait(END_S) == 0
    assert again.all_gone()
    assert up.all_gone()


def test_a_killed_node_and_a_killed_worker_are_started_again(
    seeded_folder: Path, processes: Processes
) -> None:
    up = Up(processes, seeded_folder, "--port", "0", "--nodes", "2", "--worker", SAMPLE)
    killed = [p for p in up.family if is_duly(p, "node") or is_duly(p, "worker")]
    assert len(killed) == 3
    for process in killed:
        process.kill()
    with SyncClient(up.url) as client:
        task = block_until(
            lambda: client.submit("demo.hello", {"number": 3}), 60, "the API is back",
            ignore=(Exception,),
        )  # fmt: skip
        up.child.wait_for_line("worker ran task 3")
        block_until(lambda: client.get(task.id).finished_at, 60, "the task is recorded")
    up.family += psutil.Process(up.child.pid).children(recursive=True)
    up.child.signal_group(signal.SIGINT)
    assert up.child.wait(END_S) == 0
    assert up.all_gone()


def test_a_folder_in_use_and_a_port_in_use(seeded_folder: Path, processes: Processes) -> None:
    up = Up(processes, seeded_folder, "--port", "0")
    port = up.url.rpartition(":")[2]
    second = processes.python("-m", "duly", "up", "--data", seeded_folder, "--port", port)
    assert second.wait() == 1
    assert second.output.startswith(f"duly: {seeded_folder} is in use by process {up.child.pid}: ")
    elsewhere = seeded_folder / "elsewhere"
    third = processes.python("-m", "duly", "up", "--data", elsewhere, "--port", port)
    assert third.wait() == 1
    assert f"duly: port {port} is in use: choose another with --port" in third.output
    assert not elsewhere.exists()
    assert up.child.exit_code is None
    assert (seeded_folder / "urls.json").exists()
    assert up.child.stop() == 0


@pytest.mark.parametrize(
    ("environ", "more", "says"),
    [
        ({"DULY_HORIZON_S": "1"}, [], "must be a number from 5 to 3600"),
        ({}, ["--worker", "there_is_no_such_module:x"], "cannot import 'there_is_no_such_module'"),
    ],
)
def test_what_cannot_run_ends_all_of_it(
    seeded_folder: Path,
    processes: Processes,
    environ: dict[str, str],
    more: list[str],
    says: str,
) -> None:
    argv = ("-m", "duly", "up", "--data", str(seeded_folder), "--port", "0", *more)
    child = processes.python(*argv, env=environ)
    assert child.wait(END_S) == 1
    assert says in child.output
    assert "Traceback" not in child.output
    assert not (seeded_folder / "urls.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_starts(
    seeded_folder: Path, processes: Processes, number: signal.Signals
) -> None:
    child = processes.python("-m", "duly", "up", "--data", seeded_folder, "--port", "0")
    child.wait_for_line(r"^PostgreSQL \S+ on")
    family = psutil.Process(child.pid).children(recursive=True)
    child.signal_group(number)
    assert child.wait(END_S) == 0
    assert not wait_ended(family, END_S)
    assert "Traceback" not in child.output


def test_a_second_ctrl_c_does_not_wait_for_tasks(
    seeded_folder: Path, processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleeper.py").write_text(
        "import asyncio, os, duly\n"
        "worker = duly.Worker(os.environ['DULY_REDIS_URL'])\n"
        "@worker.task('sleep')\n"
        "async def sleep(ctx):\n"
        "    print('asleep', flush=True)\n"
        "    await asyncio.sleep(300)\n"
    )
    monkeypatch.chdir(tmp_path)
    up = Up(processes, seeded_folder, "--port", "0", "--worker", "sleeper:worker")
    with SyncClient(up.url) as client:
        client.submit("sleep")
    up.child.wait_for_line("asleep")
    up.child.signal_group(signal.SIGINT)
    up.child.wait_for_line("Stopping")
    worker = up.child_of("worker")
    up.child.signal_group(signal.SIGINT)
    assert not wait_ended([worker], 12)  # the first alone gives it 15 s
    assert up.child.wait(END_S) == 0
    assert up.all_gone()


def test_demo_shows_a_task_and_how_late_it_ran(seeded_folder: Path, processes: Processes) -> None:
    folder = ("--data", seeded_folder)
    child = processes.python("-m", "duly", "demo", *folder, "--port", "0", "--count", "1")
    assert child.wait(120) == 0, child.output
    assert re.search(r"submitted task 1, due \S+ \(3 s from now\)", child.output)
    assert re.search(r"worker ran task 1, \d+\.\d ms after its due time", child.output)
    assert "Traceback" not in child.output


def free_port() -> str:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
