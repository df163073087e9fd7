"""A stream of tasks: in batches, in order, each once, with a bar."""

import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio.to_thread
import pytest
from aiohttp import web
from fake_api import FakeApi, problem

import duly
from duly.nodes.client import batches


def tasks(count: int) -> Iterator[dict[str, Any]]:
    for n in range(count):
        yield {"type": "t", "payload": n}


async def later(count: int) -> AsyncIterator[dict[str, Any]]:
    for task in tasks(count):
        yield task


def sizes(api: FakeApi) -> list[int]:
    return [len(body["tasks"]) for _, _, body, _ in api.requests]


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
async def test_all_come_in_order(api: FakeApi, client: duly.Client, count: int) -> None:
    for source in (tasks(count), later(count)):
        told: list[int] = []
        api.requests.clear()
        ids = await client.submit_many(source, batch_size=100, progress=told.append)
        assert [api.tasks[str(one)]["payload"] for one in ids] == list(range(count))
        assert sizes(api) == [min(100, count - n) for n in range(0, count, 100)]
        assert told == [min(n + 100, count) for n in range(0, count, 100)]


async def test_large_tasks_go_in_smaller_batches(
    api: FakeApi, client: duly.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_BYTES_MAX", 1000)
    await client.submit_many({"type": "t", "payload": "x" * 300} for _ in range(10))
    assert sizes(api) == [4, 4, 2]


async def test_an_error_tells_how_many_were_stored_before_it(
    api: FakeApi, client: duly.Client
) -> None:
    async def wrong(request: web.Request) -> web.StreamResponse | None:
        body = await request.json()
        return problem(422, "too much") if body["tasks"][0]["payload"] == 20 else None

    api.before = [wrong] * 5
    with pytest.raises(duly.Invalid) as caught:
        await client.submit_many(tasks(50), batch_size=10)
    assert caught.value.__notes__ == ["20 tasks were stored before this"]
    assert len(api.tasks) == 20


@pytest.mark.parametrize("size", [0, 10_001])
async def test_a_batch_has_a_size(api: FakeApi, client: duly.Client, size: int) -> None:
    with pytest.raises(ValueError, match="batch_size is 1 to 10,000"):
        await client.submit_many(tasks(1), batch_size=size)


async def test_a_bar_shows_how_far_it_is(
    api: FakeApi, client: duly.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    await client.submit_many(list(tasks(30)), batch_size=10, progress=True)
    assert "30.0/30.0" in capsys.readouterr().err


async def test_a_bar_needs_its_package(
    api: FakeApi, client: duly.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(RuntimeError, match=r"duly\[progress\]"):
        await client.submit_many(tasks(1), progress=True)
    assert not api.requests


async def test_without_an_event_loop_the_tasks_are_taken_in_the_callers_thread(
    api: FakeApi,
) -> None:
    threads: set[int] = set()

    def here() -> Iterator[dict[str, Any]]:
        for task in tasks(25):
            threads.add(threading.get_ident())
            yield task

    def use() -> tuple[int, int]:
        with duly.SyncClient(api.url) as client:
            return len(client.submit_many(here(), batch_size=10)), threading.get_ident()

    count, thread = await anyio.to_thread.run_sync(use)
    assert count == 25
    assert threads == {thread}
    assert sizes(api) == [10, 10, 5]
