"""Moves of slots that break off: the mover is killed, a store is cut off, somebody is in the way."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from completing import Given, completing
from cutting_proxy import CuttingProxy, cutting_proxy
from mover_child import STEPS
from moves_rig import ends, left, move, undo
from processes import Child, Processes, line_of
from stores_rig import RunningStores, running_stores
from waiting import wait_for

from duly.storage import fences, move_session, stores
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.fences import Fence
from duly.storage.layout import Layout, slot_of, slot_of_key
from duly.storage.move_copies import Copies
from duly.storage.move_session import LockedError, MoveError, MoveSession

_SLOTS = range(64, 128)
_SUPPORT = Path(__file__).parent.parent / "support"
_THERE = ("taken", "clearing", "unwatching")


async def _submit(node: RunningStores, count: int, **fields: Any) -> list[str]:
    """Tasks, each submitted as often as it takes."""

    async def stored() -> str | None:
        answer = await node.call("POST", "/v1/tasks", {"type": "t", **fields})
        if answer.status == 503:
            return None
        assert answer.status in (200, 201), answer.body
        return str(answer.body["id"])

    return [await wait_for(stored, 60, "the submission is accepted") for _ in range(count)]


async def _once_each(node: RunningStores, given: Counter[str], ids: list[str]) -> None:
    """All of these are completed, and were given to the worker once."""

    async def done() -> bool:
        tasks = [await node.client.get(one) for one in ids]
        return all(task.status == "completed" for task in tasks)

    await wait_for(done, 120, "all tasks are completed", ignore=(Exception,))
    assert {given[one] for one in ids} == {1}


@asynccontextmanager
async def _with_tasks(
    urls: list[str], redis_url: str
) -> AsyncIterator[tuple[RunningStores, Given]]:
    """A node, a worker, and tasks of all kinds; at the end all of them are where they should be, and once."""
    async with running_stores(urls, redis_url) as node, completing(redis_url) as given:
        done = await _submit(node, 15)
        far = await _submit(node, 15, delay=3600)
        keys = [key for key in map(str, range(40)) if slot_of_key(key) in _SLOTS]
        keyed = [(await _submit(node, 1, idempotency_key=key, delay=3600))[0] for key in keys]
        often = (await _submit(node, 1, schedule={"every": 1}, type="often"))[0]
        await _once_each(node, given, done)
        yield node, given
        new = await _submit(node, 15)
        await _once_each(node, given, [*done, *new])
        for one in [*far, *keyed]:
            assert (await node.client.get(one)).status == "pending"
        for key, one in zip(keys, keyed, strict=True):
            assert await _submit(node, 1, idempotency_key=key, delay=3600) == [one]
        listed = [item.id async for item in node.client.list(type="t", status="pending")]
        assert sorted(map(str, listed)) == sorted([*far, *keyed])

        async def completed() -> Counter[str]:
            ledger = (await node.call("GET", f"/v1/tasks/{often}/ledger")).body["items"]
            return Counter(one["occurrence"] for one in ledger if one["verdict"] == "completed")

        ended = await wait_for(completed, 60, "the periodic task has run again and again")
        assert set(ended.values()) == {1}, ended
        runs = (await node.call("GET", f"/v1/tasks/{done[0]}/runs")).body["items"]
        assert [run["outcome"] for run in runs] == ["completed"]


async def _nothing_begun(urls: list[str]) -> None:
    for url in urls:
        assert (await stores.facts(url)).begun is None
        connection = await asyncpg.connect(url)
        try:
            for what in (
                "select count(*) from slot_move_changes",
                "select count(*) from pg_trigger where tgname = 'slot_changed'",
            ):
                assert await connection.fetchval(what) == 0, what
        finally:
            await connection.close()


def _mover(processes: Processes, urls: list[str], step: str) -> Child:
    """One that stands still at this step."""
    path = os.pathsep.join([str(_SUPPORT), os.environ.get("PYTHONPATH", "")])
    arguments = (_SUPPORT / "mover_child.py", step, ",".join(urls), "64", "127")
    return processes.python(*arguments, env={"PYTHONPATH": path})


async def _settled(urls: list[str]) -> Layout:
    """Where the slots are, once all of them are in a store."""

    async def known() -> Layout | None:
        layout = await stores.arrange(urls)
        return None if layout.unknown else layout

    return await wait_for(known, 60, "each slot is in a store")


@pytest.mark.parametrize("step", STEPS)
async def test_a_mover_that_was_killed_is_followed_by_another(
    two_stores: list[str], redis_url: str, processes: Processes, step: str
) -> None:
    async with _with_tasks(two_stores, redis_url) as (node, given):
        mover = _mover(processes, two_stores, step)
        await line_of(mover, f"^at {step}$")
        begun = (await stores.facts(two_stores[0])).begun
        assert begun is None or begun.at_work
        mover.kill9()
        # Within the fence, nodes take the slots back, though nobody moves them any more.
        layout = await _settled(two_stores)
        assert layout.store_of(64) == (1 if step in _THERE else 0)
        await _once_each(node, given, await _submit(node, 20))
        await move(two_stores, _SLOTS)
        assert (await stores.facts(two_stores[1])).slots == frozenset(range(64, 256))
        assert await left(two_stores[0], _SLOTS) == 0
        await _nothing_begun(two_stores)


@pytest.mark.parametrize("step", ["fenced", "to be handed"])
async def test_a_mover_that_stood_still_beyond_its_fence_is_refused_and_begins_anew(
    two_stores: list[str], redis_url: str, processes: Processes, step: str
) -> None:
    async with _with_tasks(two_stores, redis_url) as (node, given):
        mover = _mover(processes, two_stores, step)
        await line_of(mover, f"^at {step}$")
        assert (await _settled(two_stores)).store_of(64) == 0
        await _once_each(node, given, await _submit(node, 20))
        mover.resume()
        assert await asyncio.to_thread(mover.wait, 120) == 0, mover.output
        assert (await stores.facts(two_stores[1])).slots == frozenset(range(64, 256))
        assert await left(two_stores[0], _SLOTS) == 0
        await _nothing_begun(two_stores)


async def test_what_was_taken_back_cannot_be_handed_over(two_stores: list[str]) -> None:
    await stores.bring_up(two_stores)
    source, target = ends(two_stores, 0, 1)
    slots = list(_SLOTS)
    epochs = slots, [0] * len(slots)
    first, second = both = [Database(url) for url in two_stores]

    async def fence(lasts_s: float) -> UUID:
        made = uuid4()
        await source.locking("move_fence", slots, made, lasts_s)
        return made

    async def holds() -> tuple[bool, bool]:
        facts = [await stores.facts(url) for url in two_stores]
        return facts[0].slots >= {*_SLOTS}, facts[1].slots >= {*_SLOTS}

    try:
        async with source, target:
            await source.begin(target=False)
            await target.begin(target=True)
            await source.value("move_watch", slots, 1)

            one = await fence(3600.0)
            assert await fences.over(first) == []
            await source.value("move_unfence", slots, "fenced", one)
            two = await fence(0.0)
            (over,) = await fences.over(first)
            assert over == Fence(two, 1, "fenced", slots)
            await source.value("move_unfence", slots, "fenced", one)  # it is another one by now
            assert await holds() == (False, False)
            assert await fences.settle(both, 0, over) == 0
            assert await holds() == (True, False)
            assert not await source.fetch("move_hand", slots, two)

            three = await fence(0.0)
            (before,) = await fences.over(first)
            assert await source.fetch("move_hand", slots, three)
            assert await fences.settle(both, 0, before) is None
            assert await holds() == (False, False)  # it was not in that state any more
            (over,) = await fences.over(first)
            assert over == Fence(three, 1, "handing", slots)
            for _ in range(2):
                assert await fences.settle(both, 0, over) == 0
            assert await holds() == (True, False)
            with pytest.raises(asyncpg.UniqueViolationError):
                await target.locking("move_take", *epochs, three)
            assert await holds() == (True, False)

            four = await fence(0.0)
            assert await source.fetch("move_hand", slots, four)
            await target.locking("move_take", *epochs, four)
            (over,) = await fences.over(first)
            assert await fences.settle(both, 0, over) == 1
            assert await holds() == (False, True)
            begun = (await stores.facts(two_stores[0])).begun
            assert begun is not None
            assert begun.state == "moved"
    finally:
        await first.close()
        await second.close()


@pytest.mark.parametrize("step", ["copying", "fenced"])
async def test_a_move_that_was_killed_is_undone(
    two_stores: list[str], redis_url: str, processes: Processes, step: str
) -> None:
    async with _with_tasks(two_stores, redis_url):
        mover = _mover(processes, two_stores, step)
        await line_of(mover, f"^at {step}$")
        mover.kill9()
        assert await undo(two_stores, _SLOTS)
        assert (await stores.facts(two_stores[0])).slots == frozenset(range(128))
        assert await left(two_stores[1], _SLOTS) == 0
        await _nothing_begun(two_stores)


def _once_before(monkeypatch: pytest.MonkeyPatch, statement: str, store: int, call: Any) -> None:
    """Call this the first time that a statement is about to be run in a store."""
    real = MoveSession.value
    calls = [call]

    async def value(self: MoveSession, name: str, *args: Any, **options: Any) -> Any:
        if name == statement and self.number == store and calls:
            calls.pop()()
        return await real(self, name, *args, **options)

    monkeypatch.setattr(MoveSession, "value", value)


def _swallow_for_a_while(proxy: CuttingProxy) -> Any:
    def answer_again() -> None:
        proxy.cut_all()  # as keepalives do it, later
        proxy.pass_on()

    def swallow() -> None:
        proxy.swallow()
        asyncio.get_running_loop().call_later(4.5, answer_again)

    return swallow


@pytest.mark.parametrize(
    ("statement", "store", "fault"),
    [
        ("move_watch_table", 0, "cut"),
        ("move_watch_table", 1, "cut"),
        ("move_wait_for_writers", 0, "silent"),
        ("move_wait_for_writers", 1, "silent"),
        ("move_wait_for_writers", 1, "cut"),
        ("move_take", 0, "cut"),
        ("move_take", 1, "cut"),
        ("move_take", 1, "answer lost"),
        ("move_take", 1, "silent"),
    ],
)
async def test_a_store_that_is_cut_off_in_the_middle_is_waited_for(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch,
    statement: str, store: int, fault: str,
) -> None:  # fmt: skip
    async with (
        _with_tasks(two_stores, redis_url),
        cutting_proxy(two_stores[store]) as proxy,
    ):
        urls = list(two_stores)
        urls[store] = proxy.url
        what = {
            "cut": proxy.cut_all,
            "answer lost": proxy.cut_at,
            "silent": _swallow_for_a_while(proxy),
        }[fault]
        _once_before(monkeypatch, statement, 1 if statement == "move_take" else 0, what)
        await move(urls, _SLOTS, settle_s=1.0)
        assert (await stores.facts(two_stores[1])).slots == frozenset(range(64, 256))
        assert await left(two_stores[0], _SLOTS) == 0
        await _nothing_begun(two_stores)


async def test_a_target_that_stays_away_leaves_the_slots_where_they_were(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        _with_tasks(two_stores, redis_url) as (node, given),
        cutting_proxy(two_stores[1]) as proxy,
    ):
        urls = [two_stores[0], proxy.url]

        def away() -> None:
            proxy.swallow()
            proxy.cut_all()

        _once_before(monkeypatch, "move_wait_for_writers", 0, away)
        with pytest.raises(StoreUnavailableError, match="store 1"):
            await move(urls, _SLOTS, patience_s=1.0)
        facts = await stores.facts(two_stores[0])
        assert facts.slots == frozenset(range(128))
        assert facts.begun == stores.Begun(frozenset(_SLOTS), 1, "copying", at_work=False)
        await _once_each(node, given, await _submit(node, 20))
        assert not await undo(urls, _SLOTS)
        await _nothing_begun(two_stores)
        proxy.pass_on()
        await move(urls, _SLOTS)
        assert (await stores.facts(two_stores[1])).slots == frozenset(range(64, 256))


async def test_slots_that_may_have_been_handed_over_are_not_taken_back_blindly(
    two_stores: list[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cutting_proxy(two_stores[1]) as proxy:
        urls = [two_stores[0], proxy.url]  # for nodes, too: they could find out otherwise
        async with _with_tasks(urls, redis_url):

            def away() -> None:
                proxy.swallow()
                proxy.cut_all()

            _once_before(monkeypatch, "move_take", 1, away)
            with pytest.raises(StoreUnavailableError, match="store 1"):
                await move(urls, _SLOTS, patience_s=1.0)
            begun = (await stores.facts(two_stores[0])).begun
            assert begun is not None
            assert begun.state == "handing"
            with pytest.raises(MoveError, match="may be in store 1"):
                await undo(urls, _SLOTS)
            proxy.pass_on()
            assert (await _settled(urls)).store_of(64) == 0
            assert await undo(urls, _SLOTS)
            assert (await stores.facts(two_stores[0])).slots == frozenset(range(128))


async def test_only_one_move_at_a_time(
    two_stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await stores.bring_up(two_stores)
    monkeypatch.setattr(move_session, "_BEGIN_S", 0.2)
    async with ends(two_stores, 0, 1)[0] as other:
        await other.begin(target=False)
        with pytest.raises(MoveError, match="another move is under way"):
            await move(two_stores, _SLOTS)
        await other.value("move_watch", list(_SLOTS), 1)
    with pytest.raises(MoveError, match=r"slot \d+ is on its way to store 1: finish that first"):
        await move(two_stores, range(4))
    with pytest.raises(MoveError, match="is store 1: name the stores in their order"):
        await move(two_stores[::-1], _SLOTS)


async def test_what_is_being_written_as_a_move_begins_is_copied(two_stores: list[str]) -> None:
    """Also by who wrote before the slots were said to move, into a table that was watched already."""
    await stores.bring_up(two_stores)
    source, target = ends(two_stores, 0, 1)
    key = next(key for key in map(str, range(999)) if slot_of_key(key) in _SLOTS)
    writer = await asyncpg.connect(two_stores[0])
    try:
        async with source, target:
            await source.begin(target=False)
            await target.begin(target=True)
            await source.locking("move_watch_table", "idempotency_keys", "key")
            writing = writer.transaction()
            await writing.start()
            await writer.execute(
                "insert into idempotency_keys values ($1, $2, '', now())", key, UUID(int=1)
            )
            await source.value("move_watch", list(_SLOTS), 1)
            with pytest.raises(LockedError):
                await source.locking(
                    "move_watch_table", "idempotency_keys", "key", tries=1, within_s=0.2
                )
            await writing.commit()
            await source.locking("move_watch_table", "idempotency_keys", "key")
            await Copies(source, target).all_of(list(_SLOTS))
            assert await left(two_stores[1], _SLOTS) == 1
    finally:
        await writer.close()


async def test_a_transaction_that_cannot_see_the_move_writes_nothing(two_stores: list[str]) -> None:
    await stores.bring_up(two_stores)
    source, _ = ends(two_stores, 0, 1)
    key = next(key for key in map(str, range(999)) if slot_of_key(key) in _SLOTS)
    writer = await asyncpg.connect(two_stores[0])
    try:
        async with source:
            await source.begin(target=False)
            async with writer.transaction(isolation="repeatable_read"):
                await writer.fetchval("select count(*) from tasks")
                await source.value("move_watch", list(_SLOTS), 1)
                await source.locking("move_watch_table", "idempotency_keys", "key")
                with pytest.raises(asyncpg.SerializationError):
                    await writer.execute(
                        "insert into idempotency_keys values ($1, $2, '', now())", key, UUID(int=1)
                    )
    finally:
        await writer.close()


async def test_a_change_copies_no_more_runs_than_it_made(two_stores: list[str]) -> None:
    await stores.bring_up(two_stores)
    task = next(i for i in map(_id, range(999)) if slot_of(i) in _SLOTS)
    source, target = ends(two_stores, 0, 1)
    connection = await asyncpg.connect(two_stores[0])
    try:
        await connection.execute(
            "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence)"
            " values ($1, 't', 'q', '1', now(), now(), now(), now())", task,
        )  # fmt: skip
        run = (
            "insert into runs (task_id, token, occurrence, attempt, outcome, recorded_at)"
            " select $1, n, now(), 1, 'completed', now() from generate_series($2::int, $3::int) n"
        )
        await connection.execute(run, task, 1, 2000)
        async with source, target:
            await source.begin(target=False)
            await target.begin(target=True)
            await source.value("move_watch", list(_SLOTS), 1)
            for table, what in (("tasks", "id"), ("runs", "run")):
                await source.locking("move_watch_table", table, what)
            copies = Copies(source, target)
            assert await copies.all_of(list(_SLOTS)) == 1
            await connection.execute("update tasks set version = 7 where id = $1", task)
            await connection.execute(run, task, 2001, 2003)
            await connection.execute("update runs set verdict = 'failed' where token = 5")
            while await copies.changes():
                pass
            rows = await target.connection.fetch(
                "select count(*) as runs, count(verdict) as told from runs group by xmin::text order by 1"
            )
            assert [(row["runs"], row["told"]) for row in rows] == [(4, 1), (1999, 0)]
            assert await target.connection.fetchval("select version from tasks") == 7
    finally:
        await connection.close()


async def test_a_name_that_another_task_had_as_it_was_copied(two_stores: list[str]) -> None:
    await stores.bring_up(two_stores)
    ended, next_one = [one for one in map(_id, range(999)) if slot_of(one) in _SLOTS][:2]
    source, target = ends(two_stores, 0, 1)
    connection = await asyncpg.connect(two_stores[0])
    insert = (
        "insert into tasks (id, type, queue, payload, next_run_at, created_at, updated_at, occurrence, name)"
        " values ($1, 't', 'q', '1', now(), now(), now(), now(), 'n')"
    )
    try:
        await connection.execute(insert, ended)
        async with source, target:
            await source.begin(target=False)
            await target.begin(target=True)
            await source.value("move_watch", list(_SLOTS), 1)
            await source.locking("move_watch_table", "tasks", "id")
            copies = Copies(source, target)
            assert await copies.all_of(list(_SLOTS)) == 1
            await connection.execute("delete from tasks")
            await connection.execute(insert, next_one)
            assert await copies.all_of(list(_SLOTS)) == 1
            (row,) = await target.connection.fetch("select id from tasks")
            assert row["id"] == next_one
    finally:
        await connection.close()


def _id(number: int) -> UUID:
    return UUID(int=number)
