"""The pool: no statement is cut short from here, and no trouble of the server outlives itself."""

import asyncio
import time
from typing import Any

import asyncpg
import pytest
from servers import ServerFactory
from store_rig import claimed, ended, opened, own_all, query, statuses, submit
from waiting import wait_for

from duly.nodes.embedded import EmbeddedServers
from duly.storage import claims
from duly.storage.database import Database
from duly.storage.errors import StoreUnavailableError
from duly.storage.migrate import migrate

ACTIVE = (
    "select query from pg_stat_activity where datname = current_database()"
    " and pid <> pg_backend_pid() and state <> 'idle'"
)


async def works(db: Database) -> bool:
    return bool(await query(db, "select 1"))


async def test_a_cancelled_caller_leaves_the_statement_to_end(db: Database) -> None:
    """However often, and wherever the cancel falls: nothing half done, nothing busy."""
    rows = await submit(db, 200)
    epochs = await own_all(db)

    async def complete(at: int) -> None:
        claim = await claims.claim(db, "node-a", [rows[at]], epochs, rows[at].next_run_at)
        await claims.complete(db, [ended(task) for task in claim.tasks], rows[at].next_run_at)

    for at in range(len(rows)):
        calling = asyncio.create_task(complete(at))
        await asyncio.sleep(at % 10 * 0.0004)
        calling.cancel()
        await asyncio.wait({calling})
    async with asyncio.timeout(10):
        await asyncio.gather(*(works(db) for _ in range(20)))
    assert await query(db, ACTIVE) == []
    found = await statuses(db, [row.id for row in rows])
    assert set(found) <= {"pending", "running", "completed"}
    assert len(await query(db, "select from runs")) == found.count("completed")


async def test_a_cancelled_transaction_is_committed_all_the_same(db: Database) -> None:
    inside = asyncio.Event()

    async def work(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("create table one (n int)")
            inside.set()
            await connection.execute("select pg_sleep(0.2)")
            await connection.execute("insert into one values (1)")

    calling = asyncio.create_task(db.run(work))
    await inside.wait()
    calling.cancel()
    await asyncio.wait({calling})

    async def ended_well() -> bool:
        return len(await query(db, "select from one")) == 1

    await wait_for(ended_well, 10, "the row is there", ignore=(asyncpg.UndefinedTableError,))
    assert await query(db, ACTIVE) == []


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(fresh_database: str) -> None:
    async with opened(fresh_database, statement_timeout_s=0.2) as db:
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="statement timeout") as caught:
            await query(db, "select pg_sleep(60)")
        assert caught.value.in_doubt
        assert time.monotonic() - began < 3
        assert await query(db, ACTIVE) == []
        assert await works(db)


async def test_c39_a_pool_that_is_used_up_says_so_in_time(fresh_database: str) -> None:
    async with opened(fresh_database, pool_size=2, acquire_timeout_s=0.3) as db:
        release, holding = asyncio.Event(), asyncio.Semaphore(0)

        async def hold(connection: Any) -> None:
            await connection.execute("select 1")
            holding.release()
            await release.wait()

        holders = [asyncio.create_task(db.run(hold)) for _ in range(2)]
        for _ in holders:
            await holding.acquire()
        with pytest.raises(StoreUnavailableError) as caught:
            await works(db)
        assert not caught.value.in_doubt
        release.set()
        await asyncio.gather(*holders)
        assert await works(db)


async def test_a_mistake_of_ours_is_not_taken_for_trouble(db: Database) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await query(db, "select from nowhere")
    with pytest.raises(asyncpg.DataError):
        await query(db, "select $1::int", "text")
    assert await works(db)


async def test_an_ended_session_is_replaced(db: Database) -> None:
    async def die(connection: Any) -> None:
        await connection.execute("select pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnavailableError) as caught:
        await db.run(die)
    assert caught.value.in_doubt
    assert await works(db)


async def test_a_connection_lost_on_its_way_back_spoils_no_answer(db: Database) -> None:
    async def answer_then_lose(connection: Any) -> str:
        pid = connection.get_server_pid()
        other = await asyncpg.connect(db._dsn, timeout=10)
        await other.execute("select pg_terminate_backend($1, 5000)", pid)
        await other.close()
        return "recorded"

    assert await db.run(answer_then_lose) == "recorded"
    assert await works(db)


async def test_a_stalled_transaction_is_trouble_of_the_server(fresh_database: str) -> None:
    """As after a SIGSTOP of the node in the middle of one."""
    async with opened(fresh_database) as db:

        async def stall(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("set local idle_in_transaction_session_timeout = 50")
                await asyncio.sleep(0.5)
                await connection.execute("select 1")

        with pytest.raises(StoreUnavailableError):
            await db.run(stall)
        assert await works(db)


async def test_c37_the_schema_may_change_under_prepared_statements(fresh_database: str) -> None:
    async with opened(fresh_database, pool_size=3) as db:
        changes = [
            "alter table tasks add column later text",
            "create index later on tasks (later)",
            "alter table finished_tasks add column later text",
            "alter table tasks alter column worker type varchar",
            "drop index later",
            "alter table tasks drop column later",
        ]
        for change in ["select 1", *changes]:
            await query(db, change)
            some = await claimed(db, 5)
            assert len(await claims.complete(db, [ended(t) for t in some], some[0].occurrence)) == 5


class TestOwnServer:
    """What needs a server that may be stopped."""

    @pytest.fixture
    async def servers(self, make_servers: ServerFactory) -> EmbeddedServers:
        servers = make_servers()
        await migrate(servers.database_url)
        return servers

    async def test_c41_a_server_that_does_not_answer(self, servers: EmbeddedServers) -> None:
        async with opened(servers.database_url, statement_timeout_s=0.3, pool_size=3) as db:
            await asyncio.gather(*(works(db) for _ in range(3)))
            servers.postgres.pause()
            began = time.monotonic()
            answers = await asyncio.gather(*(works(db) for _ in range(6)), return_exceptions=True)
            took_s = time.monotonic() - began
            servers.postgres.resume()
            assert {type(answer) for answer in answers} == {StoreUnavailableError}
            assert took_s < 12
            await wait_for(
                lambda: works(db), 10, "it answers again", ignore=(StoreUnavailableError,)
            )

            async def quiet() -> bool:
                return await query(db, ACTIVE) == []

            await wait_for(quiet, 10, "no session is left busy")

    async def test_a_server_that_was_killed_and_came_back(self, servers: EmbeddedServers) -> None:
        async with opened(servers.database_url) as db:
            some = await claimed(db, 3)
            servers.postgres.kill9()
            with pytest.raises(StoreUnavailableError):
                await claims.complete(db, [ended(task) for task in some], some[0].occurrence)
            with pytest.raises(StoreUnavailableError) as caught:
                await works(db)
            assert not caught.value.in_doubt
            servers.postgres.restart()
            ids = [task.id for task in some]

            async def all_running() -> bool:
                return await statuses(db, ids) == ["running"] * 3

            await wait_for(all_running, 10, "it is back", ignore=(StoreUnavailableError,))
            assert len(await claims.complete(db, [ended(t) for t in some], some[0].occurrence)) == 3

    async def test_c38_a_writer_that_became_read_only(self, servers: EmbeddedServers) -> None:
        async with opened(servers.database_url) as db:
            await submit(db)
            admin = await asyncpg.connect(servers.database_url, timeout=10)
            try:
                await admin.execute("alter system set default_transaction_read_only = on")
                await admin.execute("select pg_reload_conf()")

                async def refused() -> bool:
                    try:
                        await submit(db)
                    except StoreUnavailableError as error:
                        return "read-only" in str(error)
                    return False

                await wait_for(refused, 10, "writes are refused")
                pids = {row[0] for row in await query(db, "select pg_backend_pid()")}
                assert await refused()
                assert pids.isdisjoint(
                    {row[0] for row in await query(db, "select pg_backend_pid()")}
                ), "the connection was kept"
                await admin.execute("set default_transaction_read_only = off")
                await admin.execute("alter system reset default_transaction_read_only")
                await admin.execute("select pg_reload_conf()")
                await wait_for(
                    lambda: submit(db), 10, "writes again", ignore=(StoreUnavailableError,)
                )
            finally:
                await admin.close()
