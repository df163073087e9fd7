"""Slots move from one store to another while a node works on both."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from completing import completing
from moves_rig import left, move
from stores_rig import RunningStores, running_stores
from waiting import wait_for

from duly.storage import moving, stores
from duly.storage.layout import slot_of, slot_of_key
from duly.storage.move_session import MoveError
from duly.storage.moving import Move

_SLOTS = range(64, 128)


async def _submit(node: RunningStores, **fields: Any) -> str:
    """A task, submitted as often as it takes."""

    async def stored() -> str | None:
        answer = await node.call("POST", "/v1/tasks", {"type": "t", **fields})
        if answer.status == 503:
            return None
        assert answer.status in (200, 201), answer.body
        return str(answer.body["id"])

    return await wait_for(stored, 60, "the submission is accepted")


async def _all_completed(node: RunningStores, ids: Sequence[str]) -> None:
    async def done() -> bool:
        tasks = [await node.client.get(one) for one in ids]
        return all(task.status == "completed" for task in tasks)

    await wait_for(done, 120, "all tasks are completed")


async def test_slots_move_under_load_and_nothing_is_lost_or_doubled(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node, completing(redis_url) as given:
        before = [await _submit(node) for _ in range(100)]
        await _all_completed(node, before)
        far = [await _submit(node, delay=3600) for _ in range(60)]
        keys = [key for key in map(str, range(200)) if slot_of_key(key) in _SLOTS]
        keyed = {key: await _submit(node, idempotency_key=key, delay=3600) for key in keys}
        periodic = await _submit(node, schedule={"every": 1}, type="often")
        ids: list[str] = []
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                ids.append(await _submit(node, delay=0.5))

        loading = asyncio.create_task(load())
        await wait_for(lambda: len(ids) > 50, 60, "there is load")
        moved = await move(two_stores, _SLOTS)
        at_end = len(ids)
        await wait_for(lambda: len(ids) > at_end + 50, 60, "the load goes on")
        stop.set()
        await loading
        assert moved.tasks > 0

        await _all_completed(node, ids)
        del given[periodic]
        assert all(given[one] == 1 for one in [*before, *ids]), given
        assert {slot_of(UUID(one)) in _SLOTS for one in ids[at_end:]} == {False, True}
        for one in [*before, *far, *keyed.values()]:
            assert (await node.client.get(one)).id == UUID(one)
            expected = 1 if slot_of(UUID(one)) >= _SLOTS[0] else 0
            assert node.store_of(one) == expected
        for key, one in keyed.items():
            assert await _submit(node, idempotency_key=key, delay=3600) == one
        listed = [item.id async for item in node.client.list(type="t", status="pending")]
        assert sorted(map(str, listed)) == sorted([*far, *keyed.values()])
        runs = (await node.call("GET", f"/v1/tasks/{before[0]}/runs")).body["items"]
        assert [run["outcome"] for run in runs] == ["completed"]
        assert await left(two_stores[0], _SLOTS) == 0
        ledger = (await node.call("GET", f"/v1/tasks/{periodic}/ledger")).body["items"]
        ended = Counter(one["occurrence"] for one in ledger if one["verdict"] == "completed")
        assert set(ended.values()) == {1}

    # And back again.
    async with running_stores(two_stores, redis_url) as node, completing(redis_url) as given:
        await move(two_stores, _SLOTS, 1, 0)
        again = [await _submit(node) for _ in range(60)]
        await _all_completed(node, again)
        assert all(given[one] == 1 for one in again)
        for key, one in keyed.items():
            assert await _submit(node, idempotency_key=key, delay=3600) == one
        assert {node.store_of(one) for one in keyed.values()} == {0}


async def test_a_move_that_fails_within_the_fence_is_taken_back(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(two_stores, redis_url) as node, completing(redis_url) as given:
        far = [await _submit(node, delay=3600) for _ in range(40)]

        async def fail(*_: object) -> None:
            raise MoveError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(Move, "_pass_on", fail)
            with pytest.raises(MoveError, match="on purpose"):
                await move(two_stores, _SLOTS)
        ids = [await _submit(node) for _ in range(60)]
        await _all_completed(node, ids)
        assert all(given[one] == 1 for one in ids)
        held = (await stores.facts(two_stores[0])).slots
        assert held == frozenset(range(128))
        await move(two_stores, _SLOTS)
        assert {str((await node.client.get(one)).id) for one in far} == set(far)


async def test_a_move_that_was_killed_within_the_fence_is_finished_by_the_next(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        far = [await _submit(node, delay=3600) for _ in range(60)]

        async def die(*_: object) -> None:
            raise MoveError("killed")

        async def nothing(*_: object) -> None:
            """Whoever is dead takes nothing back."""

        with monkeypatch.context() as patch:
            patch.setattr(moving, "_FENCE_OVER_S", 3600.0)  # else nodes take the slots back
            patch.setattr(Move, "_pass_on", die)
            patch.setattr(Move, "settle_fence", nothing)
            with pytest.raises(MoveError, match="killed"):
                await move(two_stores, _SLOTS)
        there = [one for one in far if slot_of(UUID(one)) in _SLOTS]

        async def known() -> bool:
            return (await node.call("GET", f"/v1/tasks/{there[0]}")).status == 503

        await wait_for(known, 60, "the slot is in neither store")
        layout = await stores.bring_up(two_stores)  # a node may start meanwhile
        assert layout.unknown == list(_SLOTS)
        await move(two_stores, _SLOTS)
        await wait_for(
            lambda: node.contexts[1].vitals.owned_slots == 192, 60, "the node owns what came"
        )
        assert {str((await node.client.get(one)).id) for one in far} == set(far)


async def test_keys_that_would_be_torn_apart_are_not_moved(two_stores: list[str]) -> None:
    await stores.bring_up(two_stores)
    key = next(key for key in map(str, range(999)) if slot_of_key(key) in _SLOTS)
    connection = await asyncpg.connect(two_stores[0])
    try:
        one = next(i for i in map(_id, range(999)) if slot_of(i) < _SLOTS[0])
        await connection.execute(
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence,"
            " concurrency_key) values ($1, 't', 'q', '1', now(), now(), now(), now(), $2)",
            one, key,
        )  # fmt: skip
    finally:
        await connection.close()
    with pytest.raises(MoveError, match="1 unfinished tasks have a concurrency key or a name"):
        await move(two_stores, _SLOTS, settle_s=0.0)
    assert (await stores.facts(two_stores[0])).slots == frozenset(range(128))


def _id(number: int) -> UUID:
    return UUID(int=number)
