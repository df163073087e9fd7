"""Who takes back slots on their way to another store: waits that grow, and what only another store knows."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import anyio
import pytest
from moves_rig import ends
from store_rig import opened
from virtual_time import VIRTUAL_TIME
from waiting import wait_for

from duly.actors.context import Context
from duly.actors.fences import FenceKeeper
from duly.storage import stores
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.layout import Layout


class Away:
    """A store that does not answer."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []

    async def fetch(self, name: str) -> list[Any]:
        """Note when."""
        self.asked_at.append(anyio.current_time())
        raise StoreUnavailableError(f"no answer to question {len(self.asked_at)}")


class Members:
    """Counts what is announced."""

    def __init__(self) -> None:
        self.announced = 0

    async def announce(self) -> None:
        """One more."""
        self.announced += 1


@asynccontextmanager
async def keeping(databases: Sequence[object], layout: Layout) -> AsyncIterator[Members]:
    """A keeper of the first of these stores is at work."""
    members = Members()
    context = SimpleNamespace(
        db=databases[0], stores=databases, store=0, layout=layout, members=members
    )
    keeper = FenceKeeper(cast(Context, context))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.serve, anyio.Event())
        yield members
        keeper.request_stop()


class TestInVirtualTime:
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return VIRTUAL_TIME

    async def test_a_store_that_stays_away_is_asked_ever_more_seldom_and_told_of_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        away = Away()
        async with keeping([away], Layout(["store 0 (there)"])):
            await anyio.sleep(120)
        waits = [b - a for a, b in zip(away.asked_at, away.asked_at[1:], strict=False)]
        assert max(waits[:3]) < 2
        assert 4 < min(waits[6:]) < max(waits[6:]) < 6  # each another one
        assert caplog.messages == [
            "taking back slots that were on their way from store 0 (there) fails, trying on: no answer to question 1"
        ]


async def test_what_a_store_that_is_not_configured_has_to_say_holds_nothing_else_up(
    two_stores: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    await stores.bring_up(two_stores)
    source, _ = ends(two_stores, 0, 1)

    async def fence(slots: list[int], to: int) -> UUID:
        made = uuid4()
        await source.value("move_watch", slots, to)
        await source.locking("move_fence", slots, made, 0.0)
        return made

    async with AsyncExitStack() as stack:
        both: list[Database] = [await stack.enter_async_context(opened(url)) for url in two_stores]
        async with source:
            await source.begin(target=False)
            handed = await fence([*range(32)], 2)
            assert await source.fetch("move_hand", [*range(32)], handed)
            for slots, to in (([*range(32, 64)], 1), ([*range(64, 128)], 2)):
                await fence(slots, to)
            layout = await stores.arrange(two_stores)
            assert layout.unknown == [*range(128)]
            with caplog.at_level(logging.WARNING, "duly.stores"):
                async with keeping(both, layout) as members:

                    async def back() -> bool:
                        held = await stores.held(both[0])
                        return held == frozenset(range(32, 128))

                    await wait_for(back, 10, "the other slots are taken back")
                    await fence([*range(32, 64)], 1)
                    await wait_for(back, 10, "also the next time")
            assert members.announced == 3
    assert sorted(caplog.messages) == [
        *[f"nobody has ended the move of slots 32-63 in time: they are in {layout.names[0]}"] * 2,
        f"nobody has ended the move of slots 64-127 in time: they are in {layout.names[0]}",
        "slots 0-31 wait: only store 2, which database_urls does not name here, knows whether it has taken them",
    ]
