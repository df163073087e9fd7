"""What is set of queues reaches the actors of a node: when it is told, when it is not, in trouble."""

import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from actor_rig import served
from channel_rig import Channel
from firing_rig import Firing, Record, at
from virtual_time import VIRTUAL_TIME

from duly.actors.controls import ControlReader
from duly.actors.runtime import Child, Supervisor
from duly.storage import queues
from duly.storage.errors import StoreUnavailableError
from duly.storage.queues import Control


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


class Table:
    """The table `queues`, and how often it was read."""

    def __init__(self) -> None:
        self.rows: list[Control] = []
        self.error: Exception | None = None
        self.reads = 0

    async def fetch(self, name: str, *args: Any) -> list[Record]:
        assert name == "queue_controls"
        await anyio.sleep(0.002)
        self.reads += 1
        if self.error is not None:
            raise self.error
        return [Record(row._asdict()) for row in self.rows]


class Rig:
    """A reader on a table and a channel."""

    def __init__(self) -> None:
        self.table, self.channel = Table(), Channel()
        self.context = Firing().context
        self.context.db = self.table  # type: ignore[assignment]
        self.context.streams = SimpleNamespace(signals=self.channel)  # type: ignore[assignment]

    @asynccontextmanager
    async def running(self) -> Any:
        child = Child("controls", lambda: ControlReader(self.context))
        supervisor = Supervisor("test", [child])
        async with served(supervisor):
            yield
            assert [one.restarts for one in supervisor.statistics()] == [0]

    @property
    def paused(self) -> bool:
        return self.context.controls.of("q").paused


PAUSED = Control("q", paused=True, paused_by="ann", paused_at=at(0), updated_at=at(0))


async def test_it_is_known_before_the_node_starts_and_nothing_is_set_of_others() -> None:
    rig = Rig()
    rig.table.rows = [PAUSED]
    async with rig.running():
        assert rig.context.controls.of("q") == PAUSED
        assert rig.context.controls.of("r") == Control("r")


async def test_an_announcement_is_heard_at_once() -> None:
    rig = Rig()
    async with rig.running():
        await anyio.sleep(0.1)
        rig.table.rows = [PAUSED]
        rig.channel.says.put_nowait(b"")
        await anyio.sleep(0.01)
        assert rig.paused


async def test_without_an_announcement_it_is_known_within_a_second() -> None:
    rig = Rig()
    async with rig.running():
        for rows in ([PAUSED], []):
            rig.table.rows = list(rows)
            await anyio.sleep(1.0)
            assert rig.paused == bool(rows)
        reads = rig.table.reads
        await anyio.sleep(10.0)
        assert rig.table.reads - reads <= 15


async def test_while_sweeps_tell_that_nothing_has_changed_the_table_is_not_read() -> None:
    rig = Rig()
    rig.table.rows = [PAUSED]
    controls = rig.context.controls
    state = queues.state([PAUSED])
    async with rig.running():
        reads = rig.table.reads
        for _ in range(20):
            await anyio.sleep(0.5)
            controls.check(state, rig.context.clock.monotonic())
        assert rig.table.reads == reads
        rig.table.rows = []
        controls.check(queues.state([]), rig.context.clock.monotonic())
        await anyio.sleep(0.01)
        assert not rig.paused
        rig.table.rows = [PAUSED]
        await anyio.sleep(1.0)  # without any further sweep
        assert rig.paused


async def test_what_was_last_read_counts_while_the_servers_are_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.table.rows = [PAUSED]
    with caplog.at_level(logging.WARNING):
        async with rig.running():
            rig.table.error = StoreUnavailableError("away")
            rig.channel.says.put_nowait(ConnectionError("away"))
            await anyio.sleep(60.0)
            assert rig.paused
            assert list(rig.context.vitals.postgres.now) == ["reading what is set of queues"]
            rig.table.rows, rig.table.error = [], None
            await anyio.sleep(5.0)
            assert not rig.paused
            assert not rig.context.vitals.postgres.now
            rig.table.rows = [PAUSED]
            rig.channel.says.put_nowait(b"")
            await anyio.sleep(0.01)
            assert rig.paused
    assert caplog.text.count("reading what is set of queues fails") == 1
    assert caplog.text.count("listening for changes of queues fails") == 1


async def test_a_node_does_not_start_before_it_knows() -> None:
    rig = Rig()
    rig.table.rows, rig.table.error = [PAUSED], StoreUnavailableError("away")
    async with anyio.create_task_group() as tasks:

        async def mend() -> None:
            await anyio.sleep(20.0)
            rig.table.error = None

        tasks.start_soon(mend)
        async with rig.running():
            assert rig.paused
