"""A crontab from its file to the runs of its jobs, on a real node and a real worker."""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from node_rig import RunningNode
from waiting import wait_for
from worker_rig import running

from duly.contrib import shell
from duly.nodes.cli import main
from duly.nodes.client import Run
from duly.nodes.worker import Worker

DEBIAN = Path(__file__).parents[1] / "nodes" / "crontabs"
WAIT_S = 60.0

Import = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
def import_crontab(node: RunningNode, capsys: pytest.CaptureFixture[str]) -> Import:
    """Runs the command, which must succeed; answers what it says of each job."""

    async def run(*argv: object) -> list[Any]:
        words = ["import", "crontab", *map(str, argv), "--tz", "Europe/Berlin", "--json"]
        words += ["--url", node.url]
        assert await anyio.to_thread.run_sync(main, words) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


async def test_debians_crontab_is_imported_once_however_often(
    node: RunningNode, import_crontab: Import
) -> None:
    given = (DEBIAN / "crontab", "--system", "--type-prefix", "cron", "--max-retries", 1)
    announced = await import_crontab(*given, "--dry-run")
    first = await import_crontab(*given)
    again = await import_crontab(*given)
    assert [job["imported"] for job in first] == [True] * 4
    assert [(job["imported"], job["status"]) for job in again] == [(False, "pending")] * 4
    tasks = {str(task.id): task async for task in node.client.list(type="cron.shell")}
    assert len(tasks) == 4
    for job in announced:
        task = tasks[job["id"]]
        assert task.next_run_at == datetime.fromisoformat(job["fire_times"][0])
        assert task.schedule == job["schedule"]
        assert task.payload == job["payload"]
        assert (task.timeout, task.max_retries) == (86_400, 1)
    hourly = tasks[first[0]["id"]]
    assert hourly.schedule == {"cron": "17 * * * *", "timezone": "Europe/Berlin"}
    assert hourly.payload["command"] == "cd / && run-parts --report /etc/cron.hourly"
    assert hourly.payload["user"] == "root"


async def test_a_job_runs_as_its_line_says(
    node: RunningNode, redis_url: str, import_crontab: Import, tmp_path: Path
) -> None:
    path = tmp_path / "crontab"
    path.write_text("WHO = 'the crontab'\n0 0 1 1 *  cat; echo \\%$WHO\\% >&2 %one%two\n")
    (job,) = await import_crontab(path)
    worker = Worker(redis_url)
    worker.task("shell")(shell.handler())
    async with running(worker):
        answer = await node.call("POST", f"/v1/tasks/{job['id']}/run-now")
        assert answer.status == 200

        async def runs() -> list[Run]:
            return [run async for run in node.client.runs(job["id"])]

        (run,) = await wait_for(runs, WAIT_S, "the run")
    assert run.outcome == "completed"
    assert run.result["stdout"] == "one\ntwo\n"
    assert run.result["stderr"] == "%the crontab%\n"
