"""duly queues and duly queue against an API that follows the contract."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fake_api import FakeApi

Duly = Callable[..., Awaitable[Any]]


async def test_options_set_what_they_name(api: FakeApi, duly: Duly) -> None:
    await duly("queue", "mail", "--pause", "--rate", "2.5", "--burst", "none", "--max-in-flight", 7,
               "--url", api.url)  # fmt: skip
    method, path, body, _ = api.requests[0]
    assert (method, path) == ("PUT", "/v1/queues/mail")
    assert body == {"paused": True, "rate": 2.5, "burst": None, "max_in_flight": 7}
    await duly("queue", "mail", "--resume", "--rate", "none", "--url", api.url)
    assert api.requests[1][2] == {"paused": False, "rate": None}


async def test_without_options_it_is_only_shown(api: FakeApi, duly: Duly) -> None:
    api.queues["mail"] = {
        "queue": "mail", "paused": True, "paused_by": "ann", "paused_at": "2026-11-29T12:00:00Z",
        "rate": 5, "pending": 3, "running": 0,
    }  # fmt: skip
    answer = await duly("queue", "mail", "--url", api.url)
    assert [one[0] for one in api.requests] == ["GET"]
    shown = dict(line.split(maxsplit=1) for line in answer.out.splitlines())
    assert shown == {
        "queue": "mail", "paused": "true", "paused_by": "ann", "rate": "5.0", "pending": "3",
        "paused_at": "2026-11-29T12:00:00.000+00:00", "running": "0",
        "exact": "true",
    }  # fmt: skip
    answer = await duly("queue", "mail", "--json", "--url", api.url)
    assert json.loads(answer.out)["paused_by"] == "ann"


async def test_the_list_tells_what_is_set(api: FakeApi, duly: Duly) -> None:
    api.queues |= {
        "a": {"queue": "a", "pending": 1, "running": 2, "workers": 3},
        "b": {
            "queue": "b",
            "paused": True,
            "pending": 7,
            "exact": False,
            "rate": 2.5,
            "max_in_flight": 4,
        },
    }
    answer = await duly("queues", "--url", api.url)
    first, second = answer.out.splitlines()
    assert first.split() == ["a", "pending", "1", "running", "2", "workers", "3"]
    assert second.split()[:3] == ["b", "pending", "~7"]
    assert second.endswith("workers ?  paused  rate 2.5  max in flight 4")
    answer = await duly("queues", "--json", "--url", api.url)
    assert [json.loads(line)["queue"] for line in answer.out.splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    "options",
    [("--rate", "fast"), ("--burst", "1.5"), ("--pause", "--resume"), ("--rate", "nan"), ()],
)
async def test_what_is_wrong_is_refused(api: FakeApi, duly: Duly, options: tuple[str, ...]) -> None:
    answer = await duly("queue", *(("mail",) if options else ()), *options, "--url", api.url)
    assert answer.code == 2
    assert api.requests == []
