"""Tasks from a user's transaction: none before the commit, and soon after it, however late that comes."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from node_rig import RunningNode, running_node
from waiting import wait_for
from worker_rig import running

import duly
from duly.nodes.worker import Worker


class Seen:
    """Ids of the tasks that a worker was given, and when."""

    def __init__(self, redis_url: str) -> None:
        self.worker = Worker(redis_url)
        self.at: dict[UUID, float] = {}
        self.worker.task("t")(self._see)

    async def _see(self, ctx: duly.Context, payload: Any) -> None:
        self.at[UUID(ctx.id)] = time.monotonic()

    async def has(self, task_id: UUID) -> float:
        return await wait_for(lambda: self.at.get(task_id), 60, "the task is run")


@pytest.fixture
async def seen(redis_url: str) -> AsyncIterator[Seen]:
    made = Seen(redis_url)
    async with running(made.worker):
        yield made


@pytest.fixture
async def shop(fresh_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(fresh_database, timeout=30)
    await connection.execute("create table orders (id bigserial, task uuid)")
    yield connection
    await connection.close()


async def listening(node: RunningNode, connection: Any) -> None:
    """Wait until the node hears what PostgreSQL tells."""

    async def look() -> bool:
        return bool(
            await connection.fetchval(
                "select count(*) from pg_stat_activity where application_name like $1 "
                "and query ilike 'listen %'",
                f"duly notices%{node.context.node_id[-8:]}",
            )
        )

    await wait_for(look, 60, "the node listens")


async def test_a_task_is_run_after_the_commit_and_not_before(
    node: RunningNode, seen: Seen, shop: Any
) -> None:
    async with shop.transaction():
        task_id = await duly.submit_in(shop, "t")
        await shop.execute("insert into orders (task) values ($1)", task_id)
        # Every reader of what is due has looked meanwhile: this one is submitted later, and run.
        by_api = await node.client.submit("t")
        await seen.has(by_api.id)
        assert task_id not in seen.at
        with pytest.raises(duly.NotFound):
            await node.client.get(task_id)
    await seen.has(task_id)


async def test_a_transaction_that_is_rolled_back_leaves_no_task(
    node: RunningNode, seen: Seen, shop: Any
) -> None:
    transaction = shop.transaction()
    await transaction.start()
    gone = await duly.submit_in(shop, "t")
    await transaction.rollback()
    await seen.has(await duly.submit_in(shop, "t"))
    assert gone not in seen.at
    with pytest.raises(duly.NotFound):
        await node.client.get(gone)


async def test_the_owner_is_told_at_the_commit_and_needs_no_sweep(
    fresh_database: str, redis_url: str, seen: Seen, shop: Any
) -> None:
    async with running_node(
        fresh_database, redis_url, sweep_every_s=3600.0, horizon_s=3600.0
    ) as node:
        await listening(node, shop)
        await node.client.submit("t")
        async with shop.transaction():
            task_id = await duly.submit_in(shop, "t", {"é": "ü" * 100}, fairness_key="é\x01" * 100)
        await seen.has(task_id)


async def test_what_nobody_is_told_of_the_sweep_finds_also_when_it_was_due_long_ago(
    node: RunningNode, seen: Seen, shop: Any
) -> None:
    await listening(node, shop)
    await shop.execute("set duly.notices = off")
    async with shop.transaction():
        old = await duly.submit_in(shop, "t", run_at="2020-01-01T00:00:00Z")
        soon = await duly.submit_in(shop, "t", delay=0.2)
        await asyncio.sleep(0.5)  # so that it comes due before the commit
    await seen.has(old)
    await seen.has(soon)


async def test_a_lost_session_is_made_anew(node: RunningNode, seen: Seen, shop: Any) -> None:
    await listening(node, shop)
    await shop.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name like 'duly notices%' and datname = current_database()"
    )
    await seen.has(await duly.submit_in(shop, "t"))
    await listening(node, shop)


async def test_a_notice_that_makes_no_sense_is_passed_over(
    fresh_database: str, redis_url: str, seen: Seen, shop: Any
) -> None:
    async with running_node(
        fresh_database, redis_url, sweep_every_s=3600.0, horizon_s=3600.0
    ) as node:
        await listening(node, shop)
        for nonsense in ("", "x", "[[]]", '{"node":"x","freed":["k"]}'):
            await shop.execute(
                "select pg_notify(duly_channel($1), $2)", node.context.node_id, nonsense
            )
        await seen.has(await duly.submit_in(shop, "t"))
