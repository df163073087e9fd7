"""The use cases of examples/, run as their README says, with shorter times."""

import asyncio
import csv
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Child, Processes

from duly.contrib.http.signature import sign
from duly.nodes.client import SyncClient

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
SECRET = "0123456789abcdef0123456789abcdef"
ID = r"([0-9a-f]{8}-[0-9a-f-]{27})"

Up = Callable[..., tuple[Child, str]]


@pytest.fixture
def up(seeded_folder: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Up:
    """Runs `duly up` with a worker, in the folder of the examples; gives the URL of the API too."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def start(worker: str, **env: str) -> tuple[Child, str]:
        child = processes.python(
            "-m", "duly", "up", "--data", seeded_folder, "--port", "0", "--worker", worker, env=env
        )
        return child, child.wait_for_line(r"^Ready\. API (http://127\.0\.0\.1:\d+) ", 120)[1]

    return start


def run(api: str, *argv: str) -> str:
    """The output of an example that must not fail."""
    done = subprocess.run(
        [sys.executable, *argv], cwd=FOLDER, env={**os.environ, "DULY_URL": api},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def the_id(said: str) -> str:
    found = re.search(ID, said)
    assert found is not None, said
    return found[1]


def test_a_reminder_is_shown(up: Up) -> None:
    child, api = up("reminder:worker")
    said = run(api, "reminder.py", "ada@example.org", "Call Grace", "--minutes", "0.02")
    assert "will remind ada@example.org at " in said
    child.wait_for_line(r"^To: ada@example\.org$")
    child.wait_for_line(r"^You wanted to be reminded: Call Grace$")
    with SyncClient(api) as client:
        task = client.wait(the_id(said), 60)
    assert (task.status, task.result) == ("completed", "shown")


class MailServer:
    """Takes one email, in a thread of its own."""

    def __init__(self) -> None:
        self.port = 0
        self.mail = ""
        self._ready = threading.Event()
        self._taken = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await asyncio.to_thread(self._taken.wait, 120)
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).upper():
            if line.startswith(b"DATA"):
                writer.write(b"354 go on\r\n")
                self.mail = (await reader.readuntil(b"\r\n.\r\n")).decode()
            writer.write(b"221 bye\r\n" if line.startswith(b"QUIT") else b"250 ok\r\n")
            await writer.drain()
            if line.startswith(b"QUIT"):
                break
        writer.close()
        self._taken.set()


def test_a_reminder_is_sent(up: Up) -> None:
    server = MailServer()
    _, api = up("reminder:worker", SMTP_HOST="127.0.0.1", SMTP_PORT=str(server.port))
    said = run(api, "reminder.py", "ada@example.org", "Call Grace", "--minutes", "0")
    with SyncClient(api) as client:
        task = client.wait(the_id(said), 60)
    assert (task.status, task.result) == ("completed", "sent")
    assert "Subject: Reminder: Call Grace\r\n" in server.mail
    assert f"<{task.id}." in server.mail  # Message-ID


def test_a_webhook_is_tried_until_it_is_taken(up: Up, processes: Processes) -> None:
    env = {"DULY_HTTP_SECRETS": SECRET}
    receiver = processes.python("webhook_receiver.py", "--port", "0", env=env)
    url = receiver.wait_for_line(r"^listening on (http://127\.0\.0\.1:\d+/)$")[1]
    _, api = up("duly.contrib.http", DULY_HTTP_ALLOW_NETWORKS="127.0.0.1/32", **env)
    task_id = the_id(run(api, "webhook.py", url, "--every", "0.2"))
    with SyncClient(api) as client:
        task = client.wait(task_id, 60)
        runs = list(client.runs(task_id))
    assert task.status == "completed"
    assert task.result["body"] == 'took {"event":"order.paid","order":7}'
    assert [(one.attempt, one.outcome) for one in runs] == [
        (3, "completed"), (2, "failed"), (1, "failed"),
    ]  # fmt: skip
    assert runs[-1].error == {**runs[-1].error, "message": "503 Service Unavailable: away"}


def test_the_receiver_takes_what_is_signed_and_once(processes: Processes) -> None:
    script = str(FOLDER / "webhook_receiver.py")
    receiver = processes.python(
        script, "--port", "0", "--away", "0", env={"DULY_HTTP_SECRETS": SECRET}
    )
    url = receiver.wait_for_line(r"^listening on (http://127\.0\.0\.1:\d+/)$")[1]

    def post(secret: str) -> tuple[int, str]:
        signature = sign([secret], "key", b"body", int(time.time()))
        headers = {"Idempotency-Key": "key", "Duly-Signature": signature}
        request = urllib.request.Request(url, b"body", headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert post(SECRET[::-1]) == (401, "the signature is wrong")
    assert post(SECRET) == (200, "took body")
    assert post(SECRET) == (200, "known")


def test_the_receiver_checks_as_the_documentation_says() -> None:
    page = (ROOT / "docs" / "http-targets.md").read_text()
    found = re.search(r"^(def is_from_duly.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert found[1] in (FOLDER / "webhook_receiver.py").read_text()


def test_a_nightly_export(up: Up, tmp_path: Path) -> None:
    child, api = up("nightly_export:worker", EXPORT_FOLDER=str(tmp_path / "exports"))
    every_second = ("nightly_export.py", "--at", "* * * * * *")
    first, second = the_id(run(api, *every_second)), the_id(run(api, *every_second))
    assert first == second
    name = child.wait_for_line(r"^(orders-[-0-9]+\.csv): 3 orders$")[1]
    with SyncClient(api) as client:
        client.cancel(first)
    text = (tmp_path / "exports" / name).read_text()
    lines = list(csv.reader(text.splitlines()))
    assert lines[0] == ["id", "customer", "cents"]
    assert len(lines) == 4
