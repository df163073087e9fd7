"""duly bulk against an API that follows the contract."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_api import FakeApi

from duly.nodes.cli import bulk

Duly = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_LOOK_EVERY_S", 0.01)


async def test_without_yes_it_only_looks(api: FakeApi, duly: Duly) -> None:
    task = api.add({"type": "t"})
    answer = await duly("bulk", "cancel", "--queue", "q", "--no-periodic", "--url", api.url)
    assert [one[2] for one in api.requests] == [
        {"action": "cancel", "filter": {"queue": "q", "periodic": False}, "dry_run": True}
    ]
    first, last = answer.out.splitlines()
    assert first.startswith(task["id"])
    assert last == "about 12345 tasks; --yes to cancel them"
    answer = await duly("bulk", "cancel", "--queue", "q", "--json", "--url", api.url)
    assert json.loads(answer.out)["count"] == 12_345


async def test_with_yes_it_is_done(api: FakeApi, duly: Duly) -> None:
    answer = await duly(
        "bulk", "reschedule", "--type", "t", "--in", "60", "--rate", "5", "--yes", "--url", api.url
    )
    assert api.requests[0][2] == {
        "action": "reschedule", "filter": {"type": "t"}, "delay": 60.0, "rate": 5.0,
    }  # fmt: skip
    (job,) = api.jobs.values()
    line = f"{job['id']}  done      reschedule  3 of 3, 0 refused  type=t\n"
    assert (answer.code, answer.out) == (0, line)


async def test_jobs_are_listed_shown_and_stopped(api: FakeApi, duly: Duly) -> None:
    await duly("bulk", "pause", "--queue", "q", "--yes", "--url", api.url)
    (job_id,) = api.jobs
    answer = await duly("bulk", "list", "--url", api.url)
    assert answer.out.split()[:3] == [job_id, "done", "pause"]
    answer = await duly("bulk", "show", job_id, "--json", "--url", api.url)
    assert json.loads(answer.out)["id"] == job_id
    answer = await duly("bulk", "stop", job_id, "--url", api.url)
    assert answer.out.split()[1] == "stopping"


async def test_a_reschedule_needs_a_time(api: FakeApi, duly: Duly) -> None:
    answer = await duly("bulk", "reschedule", "--type", "t", "--url", api.url)
    assert answer.code == 2
    assert not api.requests
