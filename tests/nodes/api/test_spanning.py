"""A batch over several stores: what each of them has committed is known, whatever becomes of the others."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest
from waiting import wait_for

from duly.nodes.api.stores.spanning import Also, Part, Spanning
from duly.storage.errors import StoreUnavailableError
from duly.storage.submitting import NewTask, Submitted

NOW = datetime(2026, 11, 30, tzinfo=UTC)
TASKS = [
    NewTask(
        id=UUID(int=number), type="t", queue="q", payload="1", due=NOW, max_retries=0, backoff="{}",
        timeout=1.0, misfire_grace=None, on_lost="retry", priority=5, key=None, fingerprint=None, tags="{}",
        own_id=False, created_at=NOW, occurrence=NOW,
    )
    for number in (0, 1)
]  # fmt: skip


async def test_what_a_store_commits_late_is_not_inserted_again_when_the_first_begins_anew() -> None:
    """It would be refused as there already: the first store broke off, and nobody heard of that commit."""
    asked, answered = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def insert(store: int, tasks: list[NewTask], also: Also | None) -> list[Submitted]:
        calls.append(store)
        if store == 1:
            asked.set()
            await answered.wait()
        elif also is not None:
            broken_off = asyncio.ensure_future(also(None))
            await asked.wait()
            broken_off.cancel()
            await asyncio.wait({broken_off})
            asyncio.get_running_loop().call_soon(answered.set)
            await also(None)
        return [Submitted(one.id, 0, NOW, None, False, None, None) for one in tasks]

    batch = Spanning(insert)
    await batch.take_in([Part(store, [task]) for store, task in enumerate(TASKS)])
    assert batch.kept.keys() == {task.id for task in TASKS}
    assert calls == [0, 1]


async def test_what_a_store_commits_late_is_known_if_the_first_stays_away() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def insert(store: int, tasks: list[NewTask], also: Also | None) -> list[Submitted]:
        if also is not None:
            broken_off = asyncio.ensure_future(also(None))
            await asked.wait()
            broken_off.cancel()
            await asyncio.wait({broken_off})
            answered.set()
            await wait_for(lambda: batch.kept, 30, "it is known")
            raise StoreUnavailableError("gone")
        asked.set()
        await answered.wait()
        return [Submitted(one.id, 0, NOW, None, False, None, None) for one in tasks]

    batch = Spanning(insert)
    with pytest.raises(StoreUnavailableError):
        await batch.take_in([Part(store, [task]) for store, task in enumerate(TASKS)])
    assert batch.kept.keys() == {TASKS[1].id}
