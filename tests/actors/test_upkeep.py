"""Upkeep: the day's partitions first, and nothing that is in use is swept away."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from archive_rig import reading
from hand_worker import HandWorker
from store_rig import NOW, claimed, own_all, query
from waiting import wait_for

from duly.actors import upkeep
from duly.actors.context import Context
from duly.actors.retention import Retention
from duly.actors.upkeep import Upkeep
from duly.storage import keys
from duly.storage import upkeep as storage_upkeep
from duly.storage.errors import StoreUnavailableError

Q = "default"


async def inflight(context: Context) -> dict[str, str]:
    return dict((await context.streams.inflight_page(Q, 0))[1])


async def test_the_partitions_are_there_when_it_has_started(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []
    real = Upkeep._partitions

    async def second_time(self: Upkeep) -> None:
        tries.append(None)
        if len(tries) == 1:
            raise StoreUnavailableError("not yet")
        await real(self)

    monkeypatch.setattr(Upkeep, "_partitions", second_time)
    await Upkeep(context).started()
    rows = await query(
        context.db, "select from pg_class where relname ~ '^(runs|finished_tasks)_[0-9]{8}$'"
    )
    assert len(rows) == 18


async def test_only_what_does_not_run_under_its_token_is_swept(context: Context) -> None:
    await own_all(context.db)
    runs, newer, gone = await claimed(context.db, 3)
    await context.streams.publish(Q, [runs, gone, newer._replace(token=newer.token + 5)])
    await query(context.db, "delete from tasks where id = $1", gone.id)
    await Upkeep(context)._sweep_inflight(Q)
    # A token above the row's was published by a claim newer than what the sweep has read.
    assert await inflight(context) == {str(runs.id): "1", str(newer.id): "6"}
    assert (await context.streams.backlog(Q)).entries == 2


async def test_a_queue_with_a_wrong_typed_key_does_not_keep_the_others_untidy(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_EVERY_S", 0.1)
    await own_all(context.db)
    (gone,) = await claimed(context.db)
    await context.streams.publish(Q, [gone])
    await query(context.db, "delete from tasks where id = $1", gone.id)
    for queue in ("a-bad", "z-bad"):
        await context.streams.queues.announce(queue)
        await context.streams._link.command("SET", keys.inflight(queue), "something else")

    async def swept() -> bool:
        return not await inflight(context)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Upkeep(context).serve, anyio.Event())
        await wait_for(swept, 30, "the leftover is swept")
        tasks.cancel_scope.cancel()


async def test_places_of_entries_without_a_task_are_swept(context: Context, redis_url: str) -> None:
    await own_all(context.db)
    lost, there = await claimed(context.db, 2)
    await context.streams.publish(Q, [lost, there])
    async with HandWorker(redis_url) as hand:
        await hand.call("HDEL", keys.inflight(Q), str(lost.id))
        await Upkeep(context)._sweep(Q)
        assert await hand.call("HKEYS", keys.entries(Q)) == [str(there.id).encode()]


async def test_what_others_put_beside_the_tokens_is_left_alone(
    context: Context, redis_url: str
) -> None:
    await own_all(context.db)
    (gone,) = await claimed(context.db)
    await context.streams.publish(Q, [gone])
    await query(context.db, "delete from tasks where id = $1", gone.id)
    odd = {"no id": "1", str(uuid4()): "no token"}
    async with HandWorker(redis_url) as hand:
        for name, value in odd.items():
            await hand.call("HSET", keys.inflight(Q), name, value)
    await Upkeep(context)._sweep_inflight(Q)
    assert await inflight(context) == odd


async def test_it_goes_on_after_trouble(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_EVERY_S", 0.1)
    await own_all(context.db)
    (gone,) = await claimed(context.db)
    await context.streams.publish(Q, [gone])
    await query(context.db, "delete from tasks where id = $1", gone.id)
    real, tries = Upkeep._expire, list[None]()

    async def second_time(self: Upkeep) -> None:
        tries.append(None)
        if len(tries) == 1:
            raise StoreUnavailableError("not now")
        await real(self)

    monkeypatch.setattr(Upkeep, "_expire", second_time)

    async def swept() -> bool:
        return not await inflight(context)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Upkeep(context).serve, anyio.Event())
        await wait_for(swept, 20, "the leftover is swept")
        tasks.cancel_scope.cancel()


async def test_all_keys_whose_time_is_over_are_forgotten(context: Context) -> None:
    await query(
        context.db,
        "insert into idempotency_keys (key, task_id, fingerprint, expires_at)"
        " select 'old ' || n, gen_random_uuid(), '', $1 from generate_series(1, 12000) n",
        NOW,
    )
    await Upkeep(context)._expire()
    assert await query(context.db, "select from idempotency_keys") == []


async def test_a_reader_of_hours_does_not_hold_up_the_start(
    context: Context, fresh_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reading(fresh_database, "runs"):
        await Upkeep(context).started()
    assert "cannot be made now" in caplog.text


async def never_stop(_: float) -> bool:
    await anyio.lowlevel.checkpoint()
    return False


async def test_a_day_in_use_is_dropped_as_soon_as_it_is_not(
    context: Context, fresh_database: str
) -> None:
    await storage_upkeep.make_partitions(context.db, (NOW - timedelta(days=9)).date())
    done = anyio.Event()

    async def read() -> None:
        async with reading(fresh_database, f"runs_{NOW - timedelta(days=9):%Y%m%d}"):
            begun.set()
            await done.wait()

    async def pause(_: float) -> bool:
        done.set()
        await gone.wait()
        return False

    begun, gone = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def read_then_go() -> None:
            await read()
            gone.set()

        tasks.start_soon(read_then_go)
        await begun.wait()
        await Retention(context).drop(NOW - timedelta(days=1), pause)
    assert done.is_set()
    assert await left(context) == 0


async def left(context: Context) -> int:
    rows = await query(
        context.db,
        "select from pg_class where relname ~ '^(runs|finished_tasks|audit|rejected_reports)_[0-9]{8}$'"
        " and right(relname, 8) < $1",
        f"{NOW - timedelta(days=1):%Y%m%d}",
    )
    return len(rows)


async def test_days_that_wait_for_an_export_are_told_of_once(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    context.options = replace(context.options, archive_before_drop=True)
    await storage_upkeep.make_partitions(context.db, (NOW - timedelta(days=9)).date())
    retention, cutoff = Retention(context), NOW - timedelta(days=7)
    for _ in range(2):
        await retention.drop(cutoff, never_stop)
    assert context.vitals.unexported_days == {"finished_tasks": 3, "runs": 3}
    said = f"3 days of runs since {NOW - timedelta(days=10):%Y-%m-%d} are past their retention"
    assert caplog.text.count(said) == 1
    await retention.drop(cutoff + timedelta(days=1), never_stop)
    assert "4 days of runs since" in caplog.text
    await query(
        context.db,
        "insert into archived_days (parent, day, exported_at) select p, d, $1"
        " from unnest(array['runs', 'finished_tasks']) p,"
        " generate_series($1::timestamptz - interval '20 days', $1, '1 day') d",
        NOW,
    )
    await retention.drop(cutoff, never_stop)
    assert context.vitals.unexported_days == {"finished_tasks": 0, "runs": 0}
    assert "no day waits to be exported any more" in caplog.text
