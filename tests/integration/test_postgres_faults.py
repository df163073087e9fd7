"""A node while PostgreSQL fails over, loses answers, swallows packets, or waits for its standby."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
import asyncpg
import pytest
from cutting_proxy import CuttingProxy, cutting_proxy
from node_rig import Answer, RunningNode, running_node
from postgres_pair import PostgresPair
from redis.asyncio import Redis
from servers import ServerFactory
from waiting import wait_for

from duly.storage import keys
from duly.storage.migrate import migrate

FAR = "2040-01-01T00:00:00Z"


@pytest.fixture
async def pair(postgres_pair: PostgresPair) -> PostgresPair:
    await migrate(postgres_pair.url)
    return postgres_pair


@pytest.fixture
async def node(pair: PostgresPair, redis_url: str) -> AsyncIterator[RunningNode]:
    """A node that knows both servers of the pair."""
    async with running_node(
        pair.url, redis_url, db_statement_timeout_s=2.0, window_floor=100_000
    ) as one:
        yield one


async def look(url: str, sql: str) -> list[Any]:
    """Rows, by a session of the test's own."""
    connection = await asyncpg.connect(url, timeout=30)
    try:
        return list(await connection.fetch(sql, timeout=30))
    finally:
        await connection.close()


async def all_published(url: str, redis_url: str) -> None:
    """Wait until the stream has every task under the token that counts."""

    async def are() -> bool:
        async with Redis.from_url(redis_url, decode_responses=True) as redis:
            found = await redis.hgetall(keys.inflight("default"))
        rows = await look(url, "select id, version from tasks")
        return bool(found == {str(row["id"]): str(row["version"]) for row in rows})

    await wait_for(are, 60, "all are in the stream under their tokens")


class Load:
    """Clients that submit one after the other, whatever the answers are, until they are told to stop."""

    def __init__(self, node: RunningNode, clients: int, **fields: Any) -> None:
        self._node = node
        self._fields = fields
        self._numbers = itertools.count()
        self._stopping = False
        self.answers: list[Answer] = []
        self._clients = [asyncio.create_task(self._client()) for _ in range(clients)]

    async def _client(self) -> None:
        while not self._stopping:
            key = f"key-{next(self._numbers)}"
            body = {"type": "load", "idempotency_key": key, **self._fields}
            self.answers.append(await self._node.call("POST", "/v1/tasks", body))
            await asyncio.sleep(0.005)

    async def accepted(self, more: int) -> None:
        """Until so many more have been accepted than now."""
        wanted = len(self.ids) + more
        await wait_for(lambda: len(self.ids) >= wanted, 60, f"{more} more are accepted")

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._clients)

    @property
    def ids(self) -> list[str]:
        """Of the tasks that were accepted."""
        return [answer.body["id"] for answer in self.answers if answer.status == 201]

    @property
    def refused(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 201]


async def test_c38_a_failover_under_load_loses_nothing_that_was_accepted(
    node: RunningNode, pair: PostgresPair, redis_url: str
) -> None:
    load = Load(node, 8)
    await load.accepted(200)
    await anyio.to_thread.run_sync(pair.primary.kill9)
    await wait_for(lambda: load.refused, 60, "somebody is refused")
    red = await node.call("GET", "/readyz")
    assert (red.status, red.body["parts"]["postgres"]["ok"]) == (503, False)
    await anyio.to_thread.run_sync(pair.promote)
    await load.accepted(200)
    await load.stop()
    assert {answer.status for answer in load.refused} == {503}
    assert all(answer.headers["Retry-After"] for answer in load.refused)
    stored = [str(row["id"]) for row in await look(pair.primary.url, "select id from tasks")]
    assert set(load.ids) <= set(stored)
    assert len(load.ids) == len(set(load.ids))

    async def all_claimed() -> bool:
        pending = "select from tasks where status <> 'running'"
        return not await look(pair.primary.url, pending)

    await wait_for(all_claimed, 60, "what was accepted is fired")
    await all_published(pair.primary.url, redis_url)
    await node.ready()


async def test_c38_a_primary_that_was_set_to_read_only_is_seen_without_losing_a_connection(
    make_servers: ServerFactory, redis_url: str
) -> None:
    url = make_servers().database_url
    await migrate(url)
    admin = await asyncpg.connect(url, timeout=30)
    async with running_node(url, redis_url, window_floor=100_000) as node:
        load = Load(node, 8)
        await load.accepted(50)
        await admin.execute("alter system set default_transaction_read_only = on")
        await admin.execute("select pg_reload_conf()")

        async def red() -> bool:
            ready = await node.call("GET", "/readyz")
            return ready.status == 503 and not ready.body["parts"]["postgres"]["ok"]

        await wait_for(red, 60, "readiness is red")
        await wait_for(lambda: load.refused, 60, "somebody is refused")
        await admin.execute("set default_transaction_read_only = off")
        await admin.execute("alter system reset default_transaction_read_only")
        await admin.execute("select pg_reload_conf()")
        await load.accepted(50)
        await load.stop()
        assert {answer.status for answer in load.refused} == {503}
        stored = {str(row["id"]) for row in await look(url, "select id from tasks")}
        assert stored == set(load.ids)

        async def all_claimed() -> bool:
            return not await look(url, "select from tasks where status <> 'running'")

        await wait_for(all_claimed, 60, "what was accepted is fired")
    await admin.close()


async def test_a_commit_that_waits_for_the_standby_is_not_answered_with_success(
    node: RunningNode, pair: PostgresPair
) -> None:
    body = {"type": "a", "run_at": FAR, "idempotency_key": "once"}
    assert (await node.call("POST", "/v1/tasks", body | {"idempotency_key": "0"})).status == 201
    pair.standby.kill9()
    answer = await node.call("POST", "/v1/tasks", body)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    red = await node.call("GET", "/readyz")
    assert (red.status, red.body["parts"]["postgres"]["ok"]) == (503, False)
    # Nobody has ended the wait, and however many come, sessions do not pile up.
    await asyncio.gather(*(node.call("POST", "/v1/tasks", body) for _ in range(30)))
    sessions = await look(
        pair.primary.url, "select from pg_stat_activity where application_name like 'duly %'"
    )
    assert len(sessions) <= node.settings.db_pool_size + node.settings.db_core_pool_size + 2
    assert len(await look(pair.primary.url, "select from tasks")) == 1
    await anyio.to_thread.run_sync(pair.standby.restart)

    async def accepted() -> bool:
        answer = await node.call("POST", "/v1/tasks", body)
        return answer.status in (200, 201)

    await wait_for(accepted, 60, "submissions are accepted again")
    assert len(await look(pair.primary.url, "select from tasks")) == 2
    await node.ready()


async def lose_an_answer(proxy: CuttingProxy) -> None:
    before = proxy.cuts
    proxy.cut_at()
    await wait_for(lambda: proxy.cuts > before, 60, "an answer is lost")


async def test_answers_that_are_lost_cost_no_task_and_make_none_twice(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        cutting_proxy(fresh_database) as proxy,
        running_node(proxy.url, redis_url, dispatch_grace_s=600.0, window_floor=100_000) as node,
    ):
        load = Load(node, 8)
        for _ in range(40):
            await lose_an_answer(proxy)
            await load.accepted(10)
        await load.stop()
        assert load.refused == []
        rows = await look(fresh_database, "select id from tasks where type = 'load'")
        assert sorted(str(row["id"]) for row in rows) == sorted(load.ids)

        async def all_claimed() -> bool:
            return not await look(fresh_database, "select from tasks where status <> 'running'")

        await wait_for(all_claimed, 60, "all are claimed")

        # Long before the reaper would look for what is in no stream.
        await all_published(fresh_database, redis_url)


async def test_c41_swallowed_packets_are_noticed_and_what_came_meanwhile_is_fired(
    fresh_database: str, redis_url: str
) -> None:
    async with (
        cutting_proxy(fresh_database) as proxy,
        running_node(proxy.url, redis_url, db_statement_timeout_s=2.0) as node,
    ):
        await asyncio.gather(*(node.running_task() for _ in range(8)))
        proxy.swallow()
        # By now each pool has connections that nothing will ever come through again.
        answer = await node.call("POST", "/v1/tasks", {"type": "a", "idempotency_key": "k"})
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        red = await node.call("GET", "/readyz")
        assert (red.status, red.body["parts"]["postgres"]["ok"]) == (503, False)
        proxy.pass_on()

        async def accepted() -> Answer | None:
            answer = await node.call("POST", "/v1/tasks", {"type": "a", "idempotency_key": "k"})
            return answer if answer.status in (200, 201) else None

        task_id = (await wait_for(accepted, 60, "submissions are accepted")).body["id"]

        async def claimed() -> bool:
            return (await node.client.get(task_id)).status == "running"

        await wait_for(claimed, 60, "it is fired", ignore=(Exception,))


MIGRATION = [
    "alter table tasks add column later text",
    "alter table finished_tasks add column later text",
    "create index later_at on tasks (later)",
    "create type colour as enum ('red')",
    "alter table tasks add column colour colour",
    "alter type colour add value 'blue'",
    "alter table tasks alter column worker type varchar",
    "drop index later_at",
    "alter table tasks drop column later",
]


async def test_c37_a_migration_under_load_is_not_noticed(
    fresh_database: str, redis_url: str
) -> None:
    async with running_node(fresh_database, redis_url, window_floor=100_000) as node:
        load = Load(node, 8)
        await load.accepted(50)
        for statement in MIGRATION:
            connection = await asyncpg.connect(fresh_database, timeout=30)
            await connection.execute("set lock_timeout = '10s'")
            await connection.execute(statement)
            await connection.close()
            await load.accepted(30)
        patched = await node.call("POST", "/v1/tasks", {"type": "a", "run_at": FAR})
        path = f"/v1/tasks/{patched.body['id']}"
        assert (await node.call("PATCH", path, {"priority": 1})).status == 200
        assert (await node.call("POST", f"{path}/cancel")).status == 200
        assert (await node.call("GET", "/v1/tasks")).status == 200
        await load.stop()
        assert load.refused == []

        async def all_claimed() -> bool:
            rows = await look(fresh_database, "select from tasks where status = 'running'")
            return len(rows) == len(load.ids)

        await wait_for(all_claimed, 60, "every task is fired")


async def test_a_pool_that_is_used_up_by_clients_leaves_firing_alone(
    fresh_database: str, redis_url: str
) -> None:
    """What C39 asks of the pools: the other one is not touched."""
    async with running_node(fresh_database, redis_url, db_pool_size=2) as node:
        due_soon = (await node.client.submit("t", delay=1)).id
        held = asyncio.Event()

        async def hold(connection: Any) -> None:
            await connection.fetch("select 1")
            await held.wait()

        holders = [asyncio.create_task(node.context.api_db.run(hold)) for _ in range(2)]

        async def fired() -> bool:
            rows = await look(fresh_database, "select status from tasks")
            return [row["status"] for row in rows] == ["running"]

        try:
            await wait_for(fired, 60, "it is fired all the same")
            assert (await node.call("GET", f"/v1/tasks/{due_soon}")).status == 503
        finally:
            held.set()
            await asyncio.wait(holders)
