"""The node starts when the cluster's clock is known, and goes on when it cannot be read."""

import time
from dataclasses import replace
from datetime import datetime

import anyio
import pytest
from waiting import wait_for

from duly.actors import clock
from duly.actors.clock import ClockActor
from duly.actors.context import Context
from duly.storage import upkeep
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.upkeep import server_time
from duly.wheel.clock import ClusterClock
from duly.wheel.durations import to_us


class Server:
    """PostgreSQL's clock, as the test has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.down = False
        monkeypatch.setattr(upkeep, "server_time", self.read)

    async def read(self, db: Database) -> datetime:
        if self.down:
            raise StoreUnavailableError("PostgreSQL is away")
        return await server_time(db)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(clock, "_EVERY_S", 0.02)
    return Server(monkeypatch)


@pytest.fixture
def unset(context: Context) -> Context:
    """A context whose clock has not been measured."""
    return replace(context, clock=ClusterClock(time.monotonic))


async def test_it_starts_once_the_time_is_known(unset: Context, server: Server) -> None:
    server.down = True
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ClockActor(unset).serve, ready)
        await wait_for(lambda: unset.vitals.postgres.now, 60, "the error is shown")
        assert [one.detail for one in unset.vitals.postgres.now.values()] == ["PostgreSQL is away"]
        assert not ready.is_set()
        server.down = False
        await wait_for(ready.is_set, 60, "it has started")
        tasks.cancel_scope.cancel()
    before = unset.clock.now_us()
    now = to_us(await server_time(unset.db))
    assert before - 1_000_000 < now < unset.clock.now_us() + 1_000_000
    assert not unset.vitals.postgres.now


async def test_it_outlives_an_outage(context: Context, server: Server) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ClockActor(context).serve, anyio.Event())
        server.down = True
        await wait_for(lambda: context.vitals.postgres.now, 60, "the error is shown")
        server.down = False
        await wait_for(lambda: not context.vitals.postgres.now, 60, "no error is shown")
        tasks.cancel_scope.cancel()
