"""A bulk action of several stores is added to all of them, or stopped in each."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.nodes.api.stores.bulk import StoresBulkHandlers
from duly.storage import bulk
from duly.storage.audit import Note
from duly.storage.errors import StoreUnavailableError

JOB = bulk.NewJob(*[cast(Any, None)] * len(bulk.NewJob._fields))._replace(rate=10.0, total=4)


class Stores:
    """What was done to each of three stores, by their numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.added: list[int] = []
        self.stopped: list[int] = []
        self.fails: int | None = None
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(bulk, "add", self._add)
        monkeypatch.setattr(bulk, "stop", self._stop)
        contexts = [SimpleNamespace(api_db=number, store=number) for number in range(3)]
        self.handlers = StoresBulkHandlers.__new__(StoresBulkHandlers)
        self.handlers._stores = cast(Any, SimpleNamespace(contexts=contexts))

    async def _add(self, store: Any, job: bulk.NewJob, *_: Any) -> bulk.NewJob:
        self.asked.set()
        await self.go_on.wait()
        if store == self.fails:
            raise StoreUnavailableError("away")
        self.added.append(store)
        return job

    async def _stop(self, store: Any, *_: Any) -> None:
        if store == self.fails:
            raise StoreUnavailableError("away")
        self.stopped.append(store)

    async def add(self) -> bulk.Job:
        none = cast(Any, None)
        return await self.handlers._add(JOB, none, none, Note("who", "admin", "bulk", None))


async def test_it_is_added_everywhere_also_if_the_caller_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = Stores(monkeypatch)
    before = asyncio.all_tasks()
    adding = asyncio.ensure_future(stores.add())
    await stores.asked.wait()
    adding.cancel()
    with suppress(asyncio.CancelledError):
        await adding
    stores.go_on.set()
    await asyncio.wait(asyncio.all_tasks() - before, timeout=30)
    assert (stores.added, stores.stopped) == ([1, 2, 0], [])


async def test_it_is_stopped_everywhere_if_one_store_does_not_take_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores = Stores(monkeypatch)
    stores.go_on.set()
    stores.fails = 2
    with pytest.raises(StoreUnavailableError):
        await stores.add()
    assert (stores.added, stores.stopped) == ([1], [0, 1])
    assert "may go on in store 2" in caplog.text
