"""C30: the dispatcher is restarted every few milliseconds while the ticker sends; nothing is lost."""

import random
from typing import Any

import anyio
import pytest
from firing_rig import Firing, due_row
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors.dispatcher import Dispatcher
from duly.actors.prefetcher import Prefetcher
from duly.actors.ticker import Ticker

TASKS = {Dispatcher: 10_000, Prefetcher: 3_000}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return VIRTUAL_TIME


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Restart at once, as often as told, without a traceback for each of thousands."""
    monkeypatch.setattr("duly.actors.runtime.supervisor._PAUSE_MAX_S", 0.001)
    caplog.set_level("CRITICAL", "duly")


def dying(actor: type[Dispatcher] | type[Prefetcher], chance: random.Random) -> Any:
    """The same actor, but each instance is cut off after 5 to 50 ms, wherever it is."""

    class Dying(actor):  # type: ignore[misc,valid-type]
        async def run(self) -> None:
            with anyio.fail_after(chance.uniform(0.005, 0.05)):
                await super().run()

    return Dying


@pytest.mark.parametrize("victim", [Dispatcher, Prefetcher])
async def test_c30_every_task_is_dispatched_once_however_often_an_actor_restarts(
    victim: type[Dispatcher] | type[Prefetcher],
) -> None:
    chance = random.Random(30)
    firing = Firing()
    firing.streams.endless = True
    rows = [due_row(chance.uniform(0.1, 3)) for _ in range(TASKS[victim])]
    firing.database.put(*rows)
    actors = [dying(actor, chance) if actor is victim else actor
              for actor in (Ticker, Dispatcher, Prefetcher)]  # fmt: skip
    async with firing.running(*actors, may_crash=True, tell_s=0.002) as supervisor:
        await wait_for(lambda: len(firing.database.claimed) == len(rows), 120, "all are claimed")
        await anyio.sleep(1)
        assert sum(one.restarts for one in supervisor.statistics()) > 30
    published = firing.streams.ids
    assert len(published) == len(set(published)), "published twice"
    # What was cut off between its claim and its publication is running, and in no stream: just
    # what the reaper publishes again. It can only be the few batches of each restart.
    left = set(firing.database.claimed) - set(published)
    assert len(published) + len(left) == len(rows)
    assert len(left) < len(rows) / 2 if victim is Dispatcher else not left
