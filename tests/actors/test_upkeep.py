"""Upkeep: the day's partitions first, and nothing that is in use is swept away."""

from uuid import uuid4

import anyio
import pytest
from hand_worker import HandWorker
from store_rig import NOW, claimed, own_all, query
from waiting import wait_for

from duly.actors import upkeep
from duly.actors.context import Context
from duly.actors.upkeep import Upkeep
from duly.storage import keys
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
        await context.streams.announce(queue)
        await context.streams._command("SET", keys.inflight(queue), "something else")

    async def swept() -> bool:
        return not await inflight(context)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Upkeep(context).serve, anyio.Event())
        await wait_for(swept, 30, "the leftover is swept")
        tasks.cancel_scope.cancel()


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
