"""News of near tasks on their way to the slot's owner: here, or over Redis to another node."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
from actor_rig import served
from channel_rig import Channel
from firing_rig import Firing, due_row
from virtual_time import VIRTUAL_TIME

from duly.actors import wakes
from duly.actors.listener import Listener
from duly.actors.messages import Schedule
from duly.actors.runtime import Child, Supervisor
from duly.storage.tasks import Waiting


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


async def test_each_owner_hears_of_its_near_tasks() -> None:
    firing = Firing()
    near, far = due_row(100), due_row(130)
    waiting = [Waiting(row, owner) for row in (near, far) for owner in ("node", "other", None)]
    await wakes.wake(firing.context, waiting)
    message = await firing.context.boxes.ticker.receive()
    assert message == Schedule([near])
    assert [owner for owner, _ in firing.streams.signals.woken] == ["other"]
    assert wakes.decode(firing.streams.signals.woken[0][1]) == [near]


async def test_redis_that_does_not_answer_holds_nobody_up() -> None:
    firing = Firing()
    firing.streams.latency_s = 1000
    began = asyncio.get_running_loop().time()
    await wakes.wake(firing.context, [Waiting(due_row(1), f"other-{n}") for n in range(5)])
    assert asyncio.get_running_loop().time() - began <= 1
    firing.streams.latency_s = 0
    firing.streams.errors.append(ConnectionError("away"))
    await wakes.wake(firing.context, [Waiting(due_row(1), "other")])
    assert firing.streams.signals.woken == []


@pytest.mark.parametrize(
    "message",
    [b"", b"{}", b"[[]]", b"\xff", b'[["00000000-0000-0000-0000-000000000001",1,"2026-01-01T00:00:00",0,5,"q"]]'],
)  # fmt: skip
def test_what_is_no_wake_is_refused(message: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        wakes.decode(message)


async def test_the_listener_passes_on_and_outlives_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    firing, channel = Firing(), Channel()
    firing.context.streams = SimpleNamespace(signals=channel)  # type: ignore[assignment]
    supervisor = Supervisor("test", [Child("listener", lambda: Listener(firing.context))])
    row = due_row(1)
    good = msgspec.json.encode([row])
    box = firing.context.boxes.ticker
    with caplog.at_level(logging.WARNING):
        async with served(supervisor):
            for said in (good, b"nonsense", b"\xff\xfe", ConnectionError("away"), good):
                channel.says.put_nowait(said)
            for _ in range(2):
                with anyio.fail_after(30):
                    assert await box.receive() == Schedule([row])
                box.handled()
            await anyio.sleep(100)  # silence
            assert [one.restarts for one in supervisor.statistics()] == [0]
    assert channel.subscriptions == 2
    assert caplog.text.count("unreadable") == 2
