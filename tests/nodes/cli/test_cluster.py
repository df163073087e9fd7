"""explain, nodes and workers against an API that follows the contract."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from fake_api import FakeApi

Duly = Callable[..., Awaitable[Any]]


async def test_explain_says_each_reason_in_a_line(api: FakeApi, duly: Duly) -> None:
    task = api.add({"type": "t"})
    answer = await duly("explain", task["id"], "--url", api.url)
    assert answer.out.splitlines() == [
        f"{task['id']}  pending", "not_due: It is not due.", "no_worker: No live worker.",
    ]  # fmt: skip
    answer = await duly("explain", task["id"], "--url", api.url, "--json")
    said = json.loads(answer.out)
    assert said["reasons"][0]["later"] == 1.5
    answer = await duly("explain", uuid4(), "--url", api.url)
    assert (answer.code, answer.err) == (1, "duly: no such task\n")


async def test_nodes(api: FakeApi, duly: Duly) -> None:
    answer = await duly("nodes", "--url", api.url)
    assert answer.out.splitlines() == [
        "old  a:1  128 slots",
        "new  a:1  128 slots  5 in the wheel  0 waiting  duly 9  redis FAILS",
    ]
    answer = await duly("nodes", "--url", api.url, "--json")
    assert [json.loads(line)["id"] for line in answer.out.splitlines()] == ["old", "new"]


async def test_workers(api: FakeApi, duly: Duly) -> None:
    answer = await duly("workers", "--url", api.url)
    assert answer.out.splitlines() == [
        "other  2 of 1 running  seen 3.5 s ago",
        "sdk  b:2  mail,x  3 of 50 running  duly-python/9  seen 0.5 s ago",
    ]
    answer = await duly("workers", "--url", api.url, "--json")
    assert json.loads(answer.out.splitlines()[1])["queues"] == ["mail", "x"]
