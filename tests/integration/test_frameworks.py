"""The examples for web frameworks, copied as a user would, run as they are on a real node."""

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from node_rig import RunningNode
from processes import Child, Processes, line_of
from waiting import wait_for

from duly.nodes.client import Task

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60.0
NO_EMAIL: list[Any] = [[], {}, "ada"]

Start = Callable[..., Child]


@pytest.fixture
def start(
    request: pytest.FixtureRequest, node: RunningNode, fresh_database: str, redis_url: str,
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> Start:  # fmt: skip
    """Starts `python …` in a copy of the example that the test is marked with."""
    copy = tmp_path / "copy"
    shutil.copytree(EXAMPLES / request.param, copy)
    monkeypatch.chdir(copy)
    env = {
        "DULY_URL": node.url,
        "DULY_REDIS_URL": redis_url,
        "DULY_DATABASE_URL": fresh_database,
        "DATABASE_URL": fresh_database,
        "DATABASE_FILE": str(tmp_path / "signups.db"),
    }
    return lambda *arguments: processes.spawn([sys.executable, *arguments], env)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(WAIT_S)) as session:
        yield session


class App:
    """An app that listens, and what it answers."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def sign_up(self, email: str) -> tuple[int, Any]:
        body = {"email": email}
        async with self._http.post(f"{self._url}/signups", json=body) as answer:
            return answer.status, await answer.json()

    async def status_of(self, body: Any) -> int:
        async with self._http.post(f"{self._url}/signups", json=body) as answer:
            return answer.status

    async def show(self, number: int) -> Any:
        async with self._http.get(f"{self._url}/signups/{number}") as answer:
            return json.loads(await answer.text()) if answer.status == 200 else answer.status


async def listening(child: Child) -> str:
    return (await line_of(child, r"(http://127\.0\.0\.1:[1-9]\d+)"))[1]


async def ended(node: RunningNode, task_id: str) -> Task:
    async def look() -> Task | None:
        task = await node.client.get(task_id)
        return task if task.finished_at else None

    return await wait_for(look, WAIT_S, "the task ends")


@pytest.mark.parametrize("start", ["fastapi_app"], indirect=True)
async def test_fastapi(node: RunningNode, start: Start, http: aiohttp.ClientSession) -> None:
    served = start("-m", "uvicorn", "app:app", "--port", "0")
    await kept_once(App(http, await listening(served)), node, start)


@pytest.mark.parametrize("start", ["flask_app"], indirect=True)
async def test_flask(node: RunningNode, start: Start, http: aiohttp.ClientSession) -> None:
    served = start("-m", "flask", "run", "--port", "0")
    await kept_once(App(http, await listening(served)), node, start)


async def kept_once(app: App, node: RunningNode, start: Start) -> None:
    """A sign-up is stored and welcomed; one that is sent twice is the same."""
    status, first = await app.sign_up("ada@example.org")
    assert (status, await app.sign_up("ada@example.org")) == (201, (201, first))
    before = await app.show(first["id"])
    assert before == {"id": first["id"], "email": "ada@example.org", "welcomed_at": None}
    worker = start("-m", "duly", "worker", "worker:worker")
    task = await ended(node, first["task"])
    assert (task.type, task.status) == ("signup.welcome", "completed")
    assert task.result == "welcomed ada@example.org"
    assert worker.output.count("welcome, ada@example.org\n") == 1
    assert (await app.show(first["id"]))["welcomed_at"] is not None
    assert await app.show(10**6) == 404
    for body in NO_EMAIL:
        assert await app.status_of(body) == 422
    assert await node.count() == 0  # the only task is among the finished ones


@pytest.mark.parametrize("start", ["django_app"], indirect=True)
async def test_django(node: RunningNode, start: Start, http: aiohttp.ClientSession) -> None:
    migrated = start("manage.py", "migrate")
    assert await anyio.to_thread.run_sync(migrated.wait) == 0, migrated.output
    served = start("manage.py", "runserver", "--noreload", "127.0.0.1:0")
    app = App(http, await listening(served))
    status, first = await app.sign_up("ada@example.org")
    assert status == 201
    status, refused = await app.sign_up("ada@example.org")
    assert (status, refused) == (409, {"error": "ada@example.org has signed up before"})
    for body in NO_EMAIL:
        assert await app.status_of(body) == 422
    # What was rolled back left no task.
    assert [str(task.id) async for task in node.client.list()] == [first["task"]]

    worker = start("manage.py", "duly_worker")
    task = await ended(node, first["task"])
    assert (task.status, task.result) == ("completed", "welcomed ada@example.org")
    assert (await app.show(first["id"]))["welcomed_at"] is not None
    assert worker.output.count("welcome, ada@example.org\n") == 1
    assert await anyio.to_thread.run_sync(worker.stop) == 0, worker.output


def test_the_page_shows_code_of_the_examples() -> None:
    folders = [EXAMPLES / name for name in ("fastapi_app", "flask_app", "django_app")]
    code = [squeezed(path.read_text()) for folder in folders for path in folder.rglob("*.py")]
    page = (EXAMPLES.parent / "docs" / "frameworks.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(shown) == 7
    assert [block for block in shown if not any(squeezed(block) in file for file in code)] == []


def squeezed(code: str) -> str:
    """The code without its spaces: the page indents and wraps otherwise."""
    return re.sub(r"\s", "", code)
