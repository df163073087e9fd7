"""The tour of the README, typed as it stands there."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Child, Processes

from duly.nodes.client import SyncClient

ROOT = Path(__file__).parents[2]
# A test asks for its folder before `processes`: so the processes end before the folder goes.
READY = r"^Ready\. API (http://127\.0\.0\.1:\d+) "


@pytest.fixture
def up(seeded_folder: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Child:
    """What runs in the tour's first terminal."""
    monkeypatch.chdir(ROOT / "examples")
    folder = ("--data", seeded_folder)
    child = processes.python(
        "-m", "duly", "up", *folder, "--port", "0", "--worker", "tour:worker",
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    child.wait_for_line(READY, 120)
    return child


def url(up: Child) -> str:
    """Where the API of `up` is."""
    return up.wait_for_line(READY)[1]


def run(argv: list[str], up: Child) -> str:
    """The output of what is typed in the second terminal; it must not fail."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "DULY_URL": url(up), "PATH": path}
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_second_terminal(up: Child) -> None:
    readme = (ROOT / "README.md").read_text()
    typed = "".join(re.findall(r"^```sh\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE))
    assert typed.count("duly ") >= 8
    said = run(["bash", "-euo", "pipefail", "-c", typed], up)
    assert "one task: True\ncompleted greeted Grace\n" in said
    assert re.search(r"^not_due: It is not due before .* UTC \(in .*\)\.$", said, re.MULTILINE)
    assert re.search(r"status +cancelled", said)
    twice = re.findall(r"^[0-9a-f]{8}-[0-9a-f-]{27}$", said, re.MULTILINE)
    assert len(twice) == 2
    assert len(set(twice)) == 1
    up.wait_for_line("hello Ada")


def test_a_killed_worker_s_task_comes_again(up: Child) -> None:
    with SyncClient(url(up)) as client:
        task = client.submit("slow", backoff={"delay": 0})
        pid = int(up.wait_for_line(r"attempt 1 in process (\d+)")[1])
        os.kill(pid, signal.SIGKILL)
        again = int(up.wait_for_line(r"attempt 2 in process (\d+)", 60)[1])
        assert again != pid
        assert [(run.attempt, run.outcome) for run in client.runs(task.id)] == [(1, "lost")]
        assert client.get(task.id).version == 2
        client.cancel(task.id)  # it would sleep on


def test_the_client_of_the_docs(up: Child) -> None:
    page = (ROOT / "docs" / "client.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    said = run([sys.executable, "-P", "-c", code.replace("http://127.0.0.1:8080", url(up))], up)
    assert " pending " in said
    with SyncClient(url(up)) as client:
        (task,) = client.list(type="email.send")
    assert (task.status, task.priority, task.max_retries) == ("cancelled", 9, 5)
