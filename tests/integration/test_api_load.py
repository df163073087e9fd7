"""GET /v1/load: the due load of the next hours."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from node_rig import RunningNode
from waiting import wait_for

from duly.nodes.api import load
from duly.storage.errors import StoreUnavailableError
from duly.storage.load import Load, Series
from duly.wheel.durations import from_us, parse_time


async def test_the_due_load(node: RunningNode) -> None:
    now = from_us(node.context.clock.now_us())
    for queue, hours in (("a", 2), ("a", 2), ("b", 20)):
        await node.client.submit("t", queue=queue, run_at=now + timedelta(hours=hours))
    answer = await node.call("GET", "/v1/load")
    assert answer.status == 200
    body = answer.body
    since = parse_time(body["from"])
    assert (since.second, since.microsecond) == (0, 0)
    assert timedelta(0) <= from_us(node.context.clock.now_us()) - since < timedelta(minutes=5)
    assert (body["step_s"], body["minutes"], body["sampled"]) == (60, 1440, 1.0)
    due = {one["name"]: one["counts"] for one in body["series"]}
    assert due.keys() == {"a", "b"}
    at = (now + timedelta(hours=2) - since) // timedelta(minutes=1)
    assert due["a"] == [2 if minute == at else 0 for minute in range(1440)]
    assert sum(due["b"]) == 1

    answer = await node.call("GET", "/v1/load?by=type&hours=3")
    assert answer.body["minutes"] == 180
    assert [(one["name"], sum(one["counts"])) for one in answer.body["series"]] == [("t", 2)]


async def test_wrong_parameters(node: RunningNode) -> None:
    for query in ("by=x", "by=", "hours=0", "hours=25", "hours=x", "minutes=5"):
        answer = await node.call("GET", f"/v1/load?{query}")
        assert (answer.status, answer.fields) == (422, [query.partition("=")[0]]), query


async def test_however_many_ask_it_is_looked_up_once_in_a_while(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    released = asyncio.Event()
    released.set()

    async def due_load(*args: Any) -> Load:
        nonlocal looks
        looks += 1
        mine = looks
        await released.wait()
        return Load([Series("q", [mine] * args[3])], 1.0)

    async def seen() -> int:
        answer = await node.call("GET", "/v1/load?hours=7")
        return int(answer.body["series"][0]["counts"][0])

    monkeypatch.setattr(load, "due_load", due_load)
    assert await asyncio.gather(*(seen() for _ in range(10))) == [1] * 10
    assert await seen() == 1
    # It is old now: who asks gets it, and need not wait for the new one.
    later = node.context.clock.monotonic() + load._EVERY_S
    monkeypatch.setattr(type(node.context.clock), "monotonic", lambda _: later)
    released.clear()
    assert [await seen() for _ in range(3)] == [1] * 3
    released.set()
    await wait_for(lambda: _is(seen, 2), 30, "the new one is there")
    assert looks == 2


async def test_an_old_one_is_not_told_for_long(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await node.call("GET", "/v1/load?hours=9")
    later = node.context.clock.monotonic() + load._EVERY_S + load._OLD_S + 1

    async def due_load(*args: Any) -> Load:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(load, "due_load", due_load)
    monkeypatch.setattr(type(node.context.clock), "monotonic", lambda _: later)
    second = await node.call("GET", "/v1/load?hours=9")
    assert (first.status, second.status) == (200, 503)


async def _is(seen: Callable[[], Awaitable[int]], wanted: int) -> bool:
    return await seen() == wanted
