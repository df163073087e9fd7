"""Batches whose tasks are of several stores: all or nothing, as long as no store breaks off at its commit."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from cutting_proxy import CuttingProxy, cutting_proxy
from stores_rig import RunningStores, running_stores
from waiting import wait_for

from duly.nodes.api.submit import SubmitHandlers
from duly.storage import certainty
from duly.storage.layout import slot_of, slot_of_key
from duly.storage.submitting import NewTask, Submitted

_BATCH = "/v1/tasks/batch"


def _key(store: int, number: int) -> str:
    """The key of this number of those that are of a store of two."""
    keys = [key for key in map(str, range(1000)) if slot_of_key(key) // 128 == store]
    return keys[number]


def _id(store: int) -> str:
    while slot_of(one := uuid4()) // 128 != store:
        pass
    return str(one)


def _mixed() -> list[dict[str, Any]]:
    """Tasks of both stores by their ids and keys, and some of neither."""
    named: list[dict[str, Any]] = [
        {"id": _id(1)}, {"idempotency_key": _key(0, 0)}, {}, {"id": _id(0)}, {"name": _key(1, 1)},
        {"concurrency_key": _key(1, 2)}, {"idempotency_key": _key(1, 3)}, {},
    ]  # fmt: skip
    return [{"type": "t", "delay": 3600, **one} for one in named]


async def _kept(node: RunningStores) -> list[list[UUID]]:
    """The tasks of each store."""
    found = []
    for store in (0, 1):
        rows = await node.rows(store, "select id from tasks order by id")
        found.append([UUID(bytes=row["id"].bytes) for row in rows])
    return found


async def _all_kept(node: RunningStores) -> list[UUID]:
    here, there = await _kept(node)
    return sorted(here + there)


async def test_a_batch_goes_into_the_stores_of_its_tasks(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        tasks = _mixed()
        answer = await node.call("POST", _BATCH, {"tasks": tasks})
        assert answer.status == 201, answer.body
        ids = answer.body["ids"]
        assert [node.store_of(one) for one in ids] == [1, 0, 0, 0, 1, 1, 1, 0]
        assert (ids[0], ids[3]) == (tasks[0]["id"], tasks[3]["id"])
        assert sorted(map(UUID, ids)) == await _all_kept(node)
        named = [one for one in tasks if len(one) == 3 and "concurrency_key" not in one]
        again = await node.call("POST", _BATCH, {"tasks": named})
        assert again.status == 201, again.body
        assert again.body["ids"] == [ids[at] for at in (0, 1, 3, 4, 6)]
        assert sum(map(len, await _kept(node))) == len(tasks)
        behind = [{"type": "t", "after": [ids[at]]} for at in (0, 1)]
        answer = await node.call("POST", _BATCH, {"tasks": behind})
        assert [node.store_of(one) for one in answer.body["ids"]] == [1, 0]

        made = await node.client.submit_batch({"type": "many", "delay": 3600} for _ in range(200))
        assert {node.store_of(one) for one in made} == {0, 1}
        listed = [task.id async for task in node.client.list(type="many")]
        assert sorted(listed) == sorted(made)


async def test_what_one_store_refuses_is_stored_in_none(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        there = [{"type": "t", "delay": 3600, "idempotency_key": _key(s, 0)} for s in (0, 1)]
        assert (await node.call("POST", _BATCH, {"tasks": there})).status == 201
        before = await _kept(node)
        for refused in ([0], [1], [0, 1]):
            tasks = _mixed()[2:4] + [{**there[s], "type": "other"} for s in refused]
            tasks += [{"type": "t", "idempotency_key": _key(s, 5)} for s in (0, 1)]
            answer = await node.call("POST", _BATCH, {"tasks": tasks})
            assert answer.status == 409, answer.body
            expected = [f"tasks[{2 + at}].idempotency_key" for at in range(len(refused))]
            assert answer.fields == expected
            assert await _kept(node) == before
        waits = [{"type": "t", "id": _id(0)}, {"type": "t", "after": [_id(1)]}]
        answer = await node.call("POST", _BATCH, {"tasks": waits})
        assert (answer.status, answer.fields) == (422, ["tasks[1].after[0]"])
        taken = {"type": "other", "id": str(before[1][0])}
        answer = await node.call("POST", _BATCH, {"tasks": [taken, {"type": "t", "id": _id(0)}]})
        assert (answer.status, answer.fields) == (409, ["tasks[0].id"])
        assert await _kept(node) == before


async def test_batches_that_need_the_same_keys_do_not_lock_each_other_out(
    two_stores: list[str], redis_url: str
) -> None:
    async with running_stores(two_stores, redis_url) as node:
        tasks = [
            {"type": "t", "delay": 3600, "idempotency_key": _key(s, n)}
            for s in (0, 1)
            for n in range(40)
        ]
        shuffled = [random.sample(tasks, len(tasks)) for _ in range(4)]

        async def submit(some: list[dict[str, Any]]) -> set[tuple[str, str]]:
            async def stored() -> Any:
                answer = await node.call("POST", _BATCH, {"tasks": some})
                assert answer.status in (201, 503), answer.body
                return answer.body["ids"] if answer.status == 201 else None

            ids = await wait_for(stored, 60, "the batch is stored")
            return {(one["idempotency_key"], at) for one, at in zip(some, ids, strict=True)}

        found = await asyncio.gather(*map(submit, shuffled))
        assert all(one == found[0] for one in found)
        assert sum(map(len, await _kept(node))) == len(tasks)


def _once_committed(monkeypatch: pytest.MonkeyPatch, store: int, call: Callable[[], None]) -> None:
    """Call this when a store has committed its part of the next batch."""
    real = SubmitHandlers._insert_all
    calls = [call]

    async def insert_all(self: SubmitHandlers, new: list[NewTask], also: Any) -> list[Submitted]:
        done = await real(self, new, also)
        if self._context.store == store and calls:
            calls.pop()()
        return done

    monkeypatch.setattr(SubmitHandlers, "_insert_all", insert_all)


@asynccontextmanager
async def _first_through_proxy(
    urls: list[str], redis_url: str, **settings: Any
) -> AsyncIterator[tuple[RunningStores, CuttingProxy]]:
    async with (
        cutting_proxy(urls[0]) as proxy,
        running_stores([proxy.url, urls[1]], redis_url, **settings) as node,
    ):
        yield node, proxy


async def test_a_store_that_is_cut_off_at_its_commit_is_asked_again(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certainty, "_WITHIN_S", 60.0)
    async with _first_through_proxy(two_stores, redis_url) as (node, proxy):
        _once_committed(monkeypatch, 1, proxy.cut_all)
        answer = await node.call("POST", _BATCH, {"tasks": _mixed()})
        assert answer.status == 201, answer.body
        assert sorted(map(UUID, answer.body["ids"])) == await _all_kept(node)


async def test_a_batch_that_is_partly_stored_tells_so_and_is_completed_by_a_repeat(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certainty, "_WITHIN_S", 1.0)
    short: dict[str, Any] = {"db_statement_timeout_s": 1.0}
    async with _first_through_proxy(two_stores, redis_url, **short) as (node, proxy):
        tasks = _mixed()
        _once_committed(monkeypatch, 1, lambda: _away(proxy))
        answer = await node.call("POST", _BATCH, {"tasks": tasks})
        assert answer.status == 503, answer.body
        assert answer.headers["Retry-After"] == "1"
        stored = answer.body["ids"]
        # What has neither an id nor a key is never in that part.
        assert [one is not None for one in stored] == [
            True, False, False, False, True, True, True, False,
        ]  # fmt: skip
        rows = await node.rows(1, "select id from tasks")
        assert {str(row["id"]) for row in rows} == set(filter(None, stored))
        proxy.pass_on()
        # A concurrency key makes no task twice the same.
        tasks[5]["id"] = stored[5]
        ids = await _until_stored(node, tasks)
        assert [a for a, b in zip(ids, stored, strict=True) if b] == list(filter(None, stored))
        assert sorted(map(UUID, ids)) == await _all_kept(node)


def _away(proxy: CuttingProxy) -> None:
    proxy.swallow()
    proxy.cut_all()


async def _until_stored(node: RunningStores, tasks: list[dict[str, Any]]) -> list[str]:
    """Submit a batch as often as it takes."""

    async def stored() -> list[str] | None:
        answer = await node.call("POST", _BATCH, {"tasks": tasks})
        assert answer.status in (201, 503), answer.body
        ids: list[str] | None = answer.body["ids"] if answer.status == 201 else None
        return ids

    return await wait_for(stored, 60, "the batch is stored")
