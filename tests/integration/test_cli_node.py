"""duly node and duly worker as processes on the test run's servers."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Child, Processes
from waiting import block_until

from duly.nodes.client import SyncClient

WORKER = """
import json
import os
import duly
worker = duly.Worker(os.environ["DULY_REDIS_URL"])
@worker.task("add")
def add(ctx, payload):
    return sum(payload)
"""


@pytest.fixture
def environ(fresh_database: str, redis_url: str) -> dict[str, str]:
    """Where a node and a worker find their servers."""
    return {"DULY_DATABASE_URL": fresh_database, "DULY_REDIS_URL": redis_url, "DULY_PORT": "0"}


def listening(node: Child) -> str:
    """The URL of the node's API."""
    return node.wait_for_line(r"listening on (http://\S+)")[1]


def test_a_task_goes_from_the_node_to_the_worker_and_back(
    processes: Processes,
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "adder.py").write_text(WORKER)
    monkeypatch.chdir(tmp_path)
    node = processes.python("-m", "duly", "node", env=environ)
    worker = processes.python("-m", "duly", "worker", "adder", env=environ)
    with SyncClient(listening(node)) as client:
        task = client.submit("add", [1, 2, 3])
        block_until(lambda: client.get(task.id).finished_at, 60, "the task is recorded")
        assert client.get(task.id).result == 6
    assert worker.stop() == 0
    assert node.stop() == 0
    assert "SIGTERM: stopping" in node.output
    assert "Traceback" not in node.output + worker.output


def test_ctrl_c_is_a_clean_end(processes: Processes, environ: dict[str, str]) -> None:
    node = processes.python("-m", "duly", "node", "--log-format", "json", env=environ)
    node.wait_for_line('"message": "listening on http://127')
    node.signal_group(signal.SIGINT)
    assert node.wait() == 0
    assert '"SIGINT: stopping"' in node.output


def test_a_port_in_use_is_one_line(processes: Processes, environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        node = processes.python("-m", "duly", "node", "--port", port, env=environ)
        assert node.wait() == 1
    assert node.output.startswith(f"duly: cannot listen on 127.0.0.1 port {port}: ")
    assert node.output.count("\n") == 1


def test_a_child_of_up_stops_when_its_standard_input_closes(environ: dict[str, str]) -> None:
    argv = [sys.executable, "-P", "-m", "duly", "node", "--until-stdin-closes"]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    ) as node:
        assert node.stdin is not None
        assert node.stderr is not None
        assert any("listening on" in line for line in node.stderr)
        node.stdin.close()
        assert node.wait(60) == 0


def test_doctor_says_what_is_wrong(processes: Processes, environ: dict[str, str]) -> None:
    def doctor(**changes: str) -> tuple[list[str], dict[str, str]]:
        """About what it is bad, but that the servers of the tests forget all in a crash; and its last words."""
        ran = subprocess.run(
            [sys.executable, "-m", "duly", "doctor", "--json"],
            env=os.environ | environ | changes, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        found = [json.loads(line) for line in ran.stdout.splitlines()]
        bad = [one for one in found if one["level"] == "bad"]
        assert ran.returncode == (1 if bad else 0)
        return [one["about"] for one in bad if " is off" not in one["said"]], found[-1]

    bad, last = doctor()
    assert (bad, last["said"]) == ([], "none lives: nothing is fired")
    node = processes.python("-m", "duly", "node", env=environ)
    listening(node)
    assert doctor() == ([], {"level": "ok", "about": "nodes", "said": "1 alive", "advice": None})
    bad, _ = doctor(DULY_REDIS_URL="redis://127.0.0.1:1/0")
    assert bad == ["Redis", "lease servers"]
